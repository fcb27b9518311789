/* ---- the figures at the top ---- */

function drawHead() {
    const run = bundle.run;
    document.querySelector('h1').textContent = `${run.model}, ${run.what}`;
    document.title = `${run.model} ${run.what}: fusebox profile`;
    document.querySelector('#subtitle').textContent =
        `batch ${run.batch}, seq ${run.seq}, ${run.dtype}, on ${run.device} with ${run.library}`;
    const figure = (value, text) => node('div', {class: 'figure'}, node('b', {}, value), node('span', {}, text));
    for (const path of paths) {
        const step = path.step, limit = safe(sum(path.operations, o => o.flops), step.ms / 1000 * bundle.peaks.measured.flops);
        document.querySelector('header').append(node('div', {class: 'figures'},
            figure(time(step.ms), `${path.label}: ${step.name}, ${time(step.low)} to ${time(step.high)}, tracing off`),
            figure(scaled(safe(1000 * step.tokens, step.ms), ''), 'tokens a second'),
            figure(percent(limit), 'of the measured matrix rate (MFU)'),
            figure(bytes(path.peak_bytes), 'peak memory'),
            figure(String(Math.round(path.launches)), `launches a ${step.name}`),
            figure(percent(path.overhead), 'overhead of tracing'),
            figure(percent(path.coverage), 'of the traced time attributed')));
    }
}

/* ---- operations: passes, places, and what ran inside ---- */

function drawTree() {
    for (const path of paths) {
        const total = sum(path.operations, o => o.ms), widest = Math.max(...path.operations.map(o => o.ms), 1e-9);
        const heads = ['operation', '', 'time', 'share', 'calls', 'launches', 'rate', 'bandwidth', 'of limit', 'implemented in'];
        const body = node('tbody');
        for (const pass of ['forward', 'backward', 'update']) {
            const rows = path.operations.filter(o => o.pass === pass);
            if (!rows.length) continue;
            const ms = sum(rows, o => o.ms);
            body.append(node('tr', {class: 'footer'}, ...[pass, '', time(ms), percent(safe(ms, total)), '',
                Math.round(sum(rows, o => o.launches)), '', '', '', ''].map((text, i) =>
                node('td', {class: i === 0 || i === 9 ? 'text' : null}, String(text)))));
            for (const o of rows) treeRows(body, o, total, widest);
        }
        section('operations-' + paths.indexOf(path), 'Operations' + (paths.length > 1 ? ', ' + path.label : ''),
                'A row with an arrow opens: the primitives and kernels that ran inside. The limit is the larger of the two times ' +
                'that the work needs at this machine\'s measured rates.',
                node('div', {class: 'scroll'}, node('table', {}, node('thead', {}, node('tr', {}, ...heads.map((h, i) =>
                    node('th', {class: i === 0 || i === 9 ? 'text' : null}, h)))), body)));
    }
}

function treeRows(body, o, total, widest) {
    const bar = (ms, category) => node('span', {class: 'bar', style: `width:${(120 * ms / widest).toFixed(1)}px;background:${color(category)}`});
    const cells = [`${o.place} (${o.form})`, bar(o.ms, o.category), time(o.ms), percent(safe(o.ms, total)), digits(o.calls),
                   digits(o.launches), scaled(safe(1000 * o.flops, o.ms), 'FLOP/s'), scaled(safe(1000 * o.bytes, o.ms), 'B/s'),
                   percent(share(o)), o.source];
    const inner = o.inside.map(p => node('tr', {hidden: ''},
        ...['    ' + p.name, bar(p.ms, p.category), time(p.ms), percent(safe(p.ms, total)), digits(p.calls), digits(p.launches), '', '', '', '']
            .map((cell, i) => node('td', {class: i === 0 ? 'text' : null, style: i === 0 ? 'padding-left:30px' : i === 1 ? 'text-align:left' : null}, cell))));
    const row = node('tr', {class: inner.length ? 'fold' : null, onclick: () => {
        const open = row.classList.toggle('open');
        inner.forEach(r => { r.hidden = !open; });
    }}, ...cells.map((cell, i) => node('td', {class: i === 0 || i === 9 ? 'text' : null, style: i === 1 ? 'text-align:left' : null}, cell)));
    body.append(row, ...inner);
}

/* ---- naive beside fused, joined by operation ---- */

function drawComparison() {
    if (paths.length < 2) return;
    const [first, second] = paths, columns = [{title: 'operation', text: true}, {title: 'pass', text: true},
        {title: first.label}, {title: second.label}, {title: 'ratio'}, {title: 'saved'}, {title: 'launches'}, {title: 'largest difference'}];
    const rows = [];
    for (const a of first.operations) {
        const b = second.operations.find(o => o.place === a.place && o.pass === a.pass);
        if (!b) continue;
        const cell = (value, text) => ({text, value: Number.isFinite(value) ? value : 0});
        rows.push([a.place, a.pass, cell(a.ms, time(a.ms)), cell(b.ms, time(b.ms)), cell(safe(a.ms, b.ms), digits(safe(a.ms, b.ms)) + ' ×'),
                   cell(a.ms - b.ms, time(a.ms - b.ms)), cell(a.launches - b.launches, `${digits(a.launches)} → ${digits(b.launches)}`),
                   cell(b.difference, Number.isFinite(b.difference) ? b.difference.toExponential(1) : '–')]);
    }
    section('comparison', `${first.label} beside ${second.label}`, 'Joined by operation and pass, not by the names of kernels. The ' +
            'difference is ||a - b|| / ||a|| of the outputs, after everything that ran before.', comparisonBars(first, second), table(columns, rows));
}

function comparisonBars(first, second) {
    const rows = first.operations.map(a => [a, second.operations.find(o => o.place === a.place && o.pass === a.pass)]).filter(r => r[1]);
    const widest = Math.max(...rows.flatMap(r => [r[0].ms, r[1].ms]), 1e-9), left = 230, width = 1100, scale = (width - left - 100) / widest;
    const chart = node('svg', {viewBox: `0 0 ${width} ${rows.length * 26 + 6}`});
    rows.forEach(([a, b], i) => {
        const y = 4 + 26 * i;
        chart.append(node('text', {x: left - 10, y: y + 14, 'text-anchor': 'end'}, `${a.place} ${a.pass}`));
        [a, b].forEach((o, which) => chart.append(node('rect', {x: left, y: y + 10 * which, height: 9, width: Math.max(1, o.ms * scale),
            fill: color(o.category), 'fill-opacity': which ? 1 : 0.45, ...withTip(`${paths[which].label}: ${time(o.ms)}, ${digits(o.launches)} launches`)})));
        chart.append(node('text', {class: 'soft', x: left + Math.max(a.ms, b.ms) * scale + 8, y: y + 14}, digits(safe(a.ms, b.ms)) + ' ×'));
    });
    return chart;
}

/* ---- memory, questions, all tables, audit ---- */

function drawQuestions() {
    if (!bundle.questions.length) return;
    section('questions', 'Six questions', 'Answered from the figures of this run.', ...bundle.questions.map(q =>
        node('div', {class: 'answer'}, node('h3', {}, q.question), node('ul', {}, ...q.answer.map(line => node('li', {}, line))))));
}

function drawTables() {
    const made = paths.flatMap(path => path.tables.map(t => node('details', {},
        node('summary', {}, t.title + (paths.length > 1 ? ', ' + path.label : '')), t.note ? node('p', {class: 'note'}, t.note) : null,
        table(t.columns, t.rows, t.footers))));
    section('tables', 'All tables', 'Click a column\'s head to sort.', ...made);
}

function drawAudit() {
    const items = paths.flatMap(path => path.audit.map(check => node('li', {class: check.holds ? 'pass' : 'fail'},
        (paths.length > 1 ? path.label + ': ' : '') + check.text)));
    document.body.append(node('footer', {}, node('h2', {id: 'audit'}, 'The profile, audited'), node('ul', {style: 'list-style:none;padding:0'}, ...items)));
}

[drawHead, drawPhases, drawQuestions, drawComparison, drawTree, drawRoofline, drawTimeline, drawTables, drawAudit].forEach(draw => draw());
