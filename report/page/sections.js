/* ---- the figures at the top ---- */

/* How many times as fast the second path is: the ratio of medians, and two standard errors of it, where that of
 * a median is 0.93 spread / sqrt(steps - 1). Nothing where others had the cores. */
function drawHeadline() {
    if (paths.length < 2 || paths.some(path => path.step.cores_waited > 0.05)) return;
    const [before, after] = paths.map(path => path.step), gain = safe(before.ns, after.ns);
    const error = step => 0.93 * safe(step.spread_ns, step.ns) / Math.sqrt(step.timed - 1);
    const wide = 2 * Math.hypot(error(before), error(after));
    const interval = before.timed > 1 && after.timed > 1 && Number.isFinite(wide)
        ? ` (${(gain * (1 - wide)).toFixed(2)} to ${(gain * (1 + wide)).toFixed(2)} by the steps of this run)` : '';
    document.querySelector('header').append(
        node('p', {class: 'headline'}, `${paths[1].label} is ${gain.toFixed(2)} times as fast as ${paths[0].label}${interval}`));
}

function drawHead() {
    const run = bundle.run;
    const step = paths[0].step.name, part = step === 'step' || step === 'forward pass' ? '' : `, ${step}`;
    document.querySelector('h1').textContent = `${run.model}: ${run.program}${part}`;
    document.title = `${run.model} ${run.program}: fusebox profile`;
    document.querySelector('#subtitle').textContent =
        `batch ${run.batch}, seq ${run.seq}, ${run.dtype}, on ${run.device} with ${run.library}` +
        (run.command ? `; ${run.command}; ${run.version}, ${run.date} UTC` : '');
    const figure = (value, text, kind = '') =>
        node('div', {class: 'figure ' + kind}, node('b', {}, value), node('span', {}, text));
    /* Of a class task, after the last validation that there was. */
    const accuracy = path => {
        const [at, , top1, top5] = path.tables.find(t => t.key === 'validation')?.rows.at(-1) ?? [];
        return Number.isFinite(top1) ? figure(percent(top1), `accuracy after step ${at}, top 5 ${percent(top5)}`) : null;
    };
    drawHeadline();
    for (const path of paths) {
        const step = path.step, steps = step.timed || step.recorded,
              {measured, sheet} = bundle.peaks, rate = step.cores_waited > 0.05 ? 0 : sheet.flops || measured.flops,
              work = sum(path.operations, o => o.flops_needed ?? o.flops), limit = rate ? safe(work, step.ns / 1e9 * rate) : NaN;
        document.querySelector('header').append(node(
            'div', {class: 'figures'},
            figure(time(step.ns),
                   (steps > 1 ? `${path.label}: median ${step.name} of ${steps}, ${time(step.low_ns)} to ${time(step.high_ns)}, `
                              : `${path.label}: one ${step.name}, `) + `tracing ${step.timed === 0 ? 'on' : 'off'}`,
                   'first'),
            figure(scaled(safe(1e9 * step.tokens, step.ns), ''), `${bundle.run.unit || 'tokens'} a second`),
            figure(percent(limit), `MFU, of the ${sheet.flops ? 'data sheet' : 'measured rate'}`),
            figure(bytes(path.memory.peak_bytes), 'memory in use'),
            accuracy(path),
            figure(String(Math.round(step.launches)), `launches a ${step.name}`),
            figure(step.timed === 0 || step.overhead_noise ? 'not known' : percent(step.overhead),
                   'overhead of tracing' + (step.overhead_noise ? ', within noise' : '')),
            figure(percent(step.covered),
                   `of ${time(step.traced_ns)} attributed: the mean of ${step.recorded}, tracing on, which shares are of`)));
        if (step.cores_waited > 0.05)
            document.querySelector('header').append(
                node('p', {class: 'warning'},
                     `${path.label}: cores shared. The program's threads waited for a core ` +
                         `${percent(step.cores_waited)} of their time; do not trust its times.`));
        const why = path.source_note ? ` (${path.source_note})` : '';
        document.querySelector('header').append(
            node('p', {class: 'note'}, `${path.label}: ${path.source}${why}; ${path.window}`));
    }
}

/* ---- operations: passes, places, and what ran inside ---- */

function drawTree() {
    for (const path of paths) {
        const total = sum(path.operations, o => o.ns),
              widest = Math.max(...path.operations.map(o => o.ns), 1e-9);
        const heads = [
            'operation', '', 'time', 'share', 'calls', 'launches', 'rate', 'bandwidth', 'of limit',
            'implemented in'
        ];
        const body = node('tbody');
        for (const pass of ['forward', 'backward', 'update']) {
            const rows = path.operations.filter(o => o.pass === pass);
            if (!rows.length) continue;
            const ns = sum(rows, o => o.ns);
            body.append(node('tr', {class: 'footer'},
                             ...[pass, '', time(ns), percent(safe(ns, total)), '',
                                 Math.round(sum(rows, o => o.launches)), '', '', '', '']
                                 .map((text, i) => node('td', {class: i === 0 || i === 9 ? 'text' : null},
                                                        String(text)))));
            for (const o of rows) treeRows(body, o, total, widest);
        }
        section(
            'operations-' + paths.indexOf(path), 'Operations' + (paths.length > 1 ? ', ' + path.label : ''),
            'A row with an arrow opens: the primitives and kernels that ran inside. The ' +
                'limit is the larger of the two times ' +
                'that the work needs at this machine\'s rates: measured, or else by its data sheet.',
            node('div', {class: 'scroll'},
                 node('table', {},
                      node('thead', {},
                           node('tr', {},
                                ...heads.map(
                                    (h, i) => node('th', {class: i === 0 || i === 9 ? 'text' : null}, h)))),
                      body)));
    }
}

function treeRows(body, o, total, widest) {
    const bar = (ns, category) => node(
        'span',
        {class: 'bar', style: `width:${(120 * ns / widest).toFixed(1)}px;background:${color(category)}`});
    const cells = [
        `${o.place} (${o.form})`, bar(o.ns, o.category), time(o.ns), percent(safe(o.ns, total)),
        count(o.calls), count(o.launches), scaled(safe(1e9 * o.flops, o.ns), 'FLOP/s'),
        scaled(safe(1e9 * o.least_bytes, o.ns), 'B/s'), percent(o.share_of_limit), o.source
    ];
    const inner = o.inside.map(
        p => node('tr', {hidden: ''},
                  ...['    ' + p.name, bar(p.ns, p.category), time(p.ns), percent(safe(p.ns, total)),
                      count(p.calls), count(p.launches), '', '', '', '']
                      .map((cell, i) => node('td', {
                               class: i === 0 ? 'text' : null,
                               style: i === 0   ? 'padding-left:30px'
                                       : i === 1 ? 'text-align:left'
                                                 : null
                           },
                                             cell))));
    const row =
        node('tr', {
            class: inner.length ? 'fold' : null,
            onclick: () => {
                const open = row.classList.toggle('open');
                inner.forEach(r => { r.hidden = !open; });
            }
        },
             ...cells.map(
                 (cell, i) => node(
                     'td',
                     {class: i === 0 || i === 9 ? 'text' : null, style: i === 1 ? 'text-align:left' : null},
                     cell)));
    body.append(row, ...inner);
}

/* ---- naive beside fused, joined by operation ---- */

/* An operation of each path; what only one of them has comes without the other. */
function pairsOf(first, second) {
    const same = (a, b) => a.place === b.place && a.operation === b.operation && a.pass === b.pass;
    return [
        ...first.operations.map(a => [a, second.operations.find(b => same(a, b))]),
        ...second.operations.filter(b => !first.operations.some(a => same(a, b))).map(b => [undefined, b])
    ];
}

function comparisonRow(a, b) {
    const one = a || b, both = a && b;
    const cell = (value, text) => ({text, value: Number.isFinite(value) ? value : 0});
    const of = o => o ? cell(o.ns, time(o.ns)) : cell(0, '–');
    return [
        one.place, one.pass, of(a), of(b),
        both ? cell(safe(a.ns, b.ns), digits(safe(a.ns, b.ns)) + ' ×') : cell(0, '–'),
        both ? cell(a.ns - b.ns, time(a.ns - b.ns)) : cell(0, '–'),
        cell((a ? a.launches : 0) - (b ? b.launches : 0),
             `${a ? count(a.launches) : '–'} → ${b ? count(b.launches) : '–'}`),
        both ? cell(differenceOf(a), differenceText(a)) : cell(0, '–')
    ];
}

function drawComparison() {
    if (paths.length < 2) return;
    const [first, second] = paths, pairs = pairsOf(first, second), columns = [
        {title: 'operation', text: true}, {title: 'pass', text: true}, {title: first.label},
        {title: second.label}, {title: 'ratio'}, {title: 'saved'}, {title: 'launches'},
        {title: 'largest difference'}
    ];
    section('comparison', `${first.label} beside ${second.label}`,
            'Joined by operation and pass, not by the names of kernels. The ' +
                'difference is ||a - b|| / ||a|| of the outputs, after everything that ran before.',
            comparisonBars(pairs), table(columns, pairs.map(([a, b]) => comparisonRow(a, b))));
}

function differenceOf(o) {
    const found =
        bundle.differences.find(d => d.place === o.place && d.operation === o.operation && d.pass === o.pass);
    return found && found.difference !== null ? found.difference : NaN;
}

const differenceText = o => Number.isFinite(differenceOf(o)) ? differenceOf(o).toExponential(1) : '–';

function comparisonBars(pairs) {
    const ns = o => o ? o.ns : 0;
    const widest = Math.max(...pairs.flatMap(([a, b]) => [ns(a), ns(b)]), 1e-9), left = 230 * letters, width = 1100,
          scale = (width - left - 100 * letters) / widest;
    const chart = node('svg', {viewBox: `0 0 ${width} ${pairs.length * 26 + 6}`});
    pairs.forEach(([a, b], i) => {
        const y = 4 + 26 * i, one = a || b;
        chart.append(
            node('text', {x: left - 10, y: y + 14, 'text-anchor': 'end'}, `${one.place} ${one.pass}`));
        [a, b].forEach((o, which) => o && chart.append(node('rect', {
            x: left,
            y: y + 10 * which,
            height: 9,
            width: Math.max(1, o.ns * scale),
            fill: color(o.category),
            'fill-opacity': which ? 1 : 0.45,
            ...withTip(`${paths[which].label}: ${time(o.ns)}, ${count(o.launches)} launches`)
        })));
        if (a && b)
            chart.append(node('text', {class: 'soft', x: left + Math.max(a.ns, b.ns) * scale + 8, y: y + 14},
                              digits(safe(a.ns, b.ns)) + ' ×'));
    });
    return chart;
}

/* ---- kernels, memory, questions, audit ---- */

function drawKernels() {
    for (const path of paths) {
        const passes = [ 'forward', 'backward', 'update' ],
              of = (kernel, key) => sum(passes, pass => kernel[pass][key]);
        const total = sum(path.kernels, k => of(k, 'ns')), cell = (value, text) => ({value, text});
        const rows =
            [...path.kernels ]
                .sort((a, b) => of(b, 'ns') - of(a, 'ns'))
                .map(k => [{
                         text: k.label,
                         value: k.label,
                         note: k.name + (k.decoded ? '\n' + k.decoded : '')
                     },
                           k.place, k.category, cell(of(k, 'ns'), time(of(k, 'ns'))),
                           cell(safe(of(k, 'ns'), total), percent(safe(of(k, 'ns'), total))),
                           cell(of(k, 'calls'), count(of(k, 'calls'))),
                           cell(safe(of(k, 'ns'), of(k, 'calls')), time(safe(of(k, 'ns'), of(k, 'calls')))),
                           ...passes.map(pass => cell(k[pass].ns, k[pass].ns ? time(k[pass].ns) : ''))]);
        const heads = [
            'kernel', 'served', 'category', 'time', 'share', 'calls', 'each', 'forward', 'backward',
            'optimizer'
        ];
        section('kernels-' + paths.indexOf(path), 'Kernels' + (paths.length > 1 ? ', ' + path.label : ''),
                `What ran on the device, with copies and fills, per ${
                    path.step.name}. Click a column's head to sort.`,
                table(heads.map((title, i) => ({title, text: i < 3})), rows));
    }
}

function drawMemory() {
    const most = Math.max(...paths.map(p => p.memory.peak_bytes));
    if (!most) return;
    const width = 1100, left = 150 * letters, scale = (width - left - 120 * letters) / most,
          chart = node('svg', {viewBox: `0 0 ${width} ${paths.length * 34}`});
    const shades = {
        parameters: 'matrix',
        gradients: 'attention',
        optimizer: 'optimizer',
        saved: 'normalization',
        scratch: 'memory',
        cache: 'embedding',
        workspace: 'other'
    };
    paths.forEach((path, row) => {
        let x = left;
        chart.append(node('text', {x: left - 10, y: 34 * row + 19, 'text-anchor': 'end'}, path.label));
        for (const part of path.memory.classes) {
            chart.append(node('rect', {
                x,
                y: 34 * row + 4,
                width: part.bytes * scale,
                height: 22,
                fill: color(shades[part.class]),
                ...withTip(`${part.class}: ${bytes(part.bytes)}`)
            }));
            x += part.bytes * scale;
        }
        chart.append(node('text', {x: x + 8, y: 34 * row + 19}, bytes(path.memory.peak_bytes)));
    });
    const names =
        Object.keys(shades).filter(name => paths.some(p => p.memory.classes.some(c => c.class === name)));
    const keys =
        node('div', {class: 'legend'},
             ...names.map(
                 name => node('span', {}, node('i', {style: `background:${color(shades[name])}`}), name)));
    const lists = paths.map(
        path =>
            node('details', {},
                 node('summary', {}, `the largest tensors at their class's peak, ${path.label}`),
                 table([ {title: 'tensor', text: true}, {title: 'class', text: true}, {title: 'bytes'} ],
                       path.memory.largest.map(
                           t => [t.name, t.class, { text: bytes(t.bytes), value: t.bytes }]))));
    section('memory', 'Memory at its peak', 'By class; the device\'s own overhead is not in it.', keys, chart,
            ...lists);
}

const CELLS = {
    text: v => v,
    count: v => String(Math.round(v)),
    number: v => digits(v, 4),
    ns: time,
    bytes,
    share: percent,
    flop: v => scaled(v, 'FLOP'),
    flop_per_s: v => scaled(v, 'FLOP/s'),
    bytes_per_s: v => scaled(v, 'B/s')
};

function drawTables() {
    const cell = (value, kind) => value === null    ? {text: '', value: -Infinity}
                                  : kind === 'text' ? value
                                                    : {text: CELLS[kind](value), value};
    const made = paths.flatMap(
        path => path.tables.filter(t => t.rows.length)
                    .map(t => node('details', {},
                                   node('summary', {}, t.title + (paths.length > 1 ? ', ' + path.label : '')),
                                   table(t.columns.map(c => ({title: c.title, text: c.kind === 'text'})),
                                         t.rows.map(row => row.map((value, i) =>
                                                                       cell(value, t.columns[i].kind in CELLS
                                                                                       ? t.columns[i].kind
                                                                                       : 'text')))),
                                   ...t.notes.map(note => node('p', {class: 'note'}, note)))));
    if (made.length)
        section('tables', 'All tables', 'As the terminal prints them; a click on a column\'s head sorts.',
                ...made);
}

function drawQuestions() {
    section('questions', 'Seven questions', 'Answered from the figures of this run.',
            ...bundle.questions.filter(q => q.answer.length)
                .map(q => node('div', {class: 'answer'}, node('h3', {}, q.question),
                               node('ul', {}, ...q.answer.map(line => node('li', {}, line))))));
}

function drawAudit() {
    const items = paths.flatMap(
        path => path.audit.map(
            check => node('li', {class: check.passed ? 'pass' : 'fail'},
                          `${paths.length > 1 ? path.label + ': ' : ''}${check.check}: ${check.detail}`)));
    document.body.append(node('footer', {}, node('h2', {id: 'audit'}, 'The profile, audited'),
                              node('ul', {style: 'list-style:none;padding:0'}, ...items)));
    document.querySelector('nav').append(node('a', {href: '#audit'}, 'Audit'));
}

[drawHead, drawPhases, drawQuestions, drawComparison, drawTree, drawKernels, drawRoofline, drawTimeline,
 drawMemory, drawTables, drawAudit]
    .forEach(draw => draw());
