/* ---- the step as stacked bars: a bar for each phase of each path, in pieces by category ---- */

function drawPhases() {
    const used =
        CATEGORIES.filter(c => paths.some(p => p.phases.some(f => f.categories.some(k => k.category === c))));
    const most = Math.max(...paths.map(path => sum(path.phases, phase => phase.ns)), 1e-9);
    const left = 150 * letters, right = 130 * letters, width = 1100, scale = (width - left - right) / most, height = 22;
    const chart = node(
        'svg', {viewBox: `0 0 ${width} 10`, role: 'img', 'aria-label': 'the step by phase and category'});
    let y = 6;
    for (const path of paths) {
        const total = sum(path.phases, phase => phase.ns);
        chart.append(node('text', {x: 0, y: y + 15, 'font-weight': 600}, `${path.label}: ${time(total)}, mean, tracing on`));
        y += 24;
        let x = left;
        for (const phase of path.phases) {
            chart.append(node('text', {x: left - 10, y: y + 15, 'text-anchor': 'end', class: 'soft'},
                              phase.phase));
            let at = x;
            for (const piece of phase.categories) {
                const text = `${path.label}, ${phase.phase}: ${piece.category}\n${time(piece.ns)}, ` +
                             `${percent(safe(piece.ns, phase.ns))} of the phase, ${
                                 percent(safe(piece.ns, total))} of the step`;
                chart.append(node('rect', {
                    x: at,
                    y,
                    width: Math.max(0, piece.ns * scale),
                    height,
                    fill: color(piece.category),
                    ...withTip(text)
                }));
                at += piece.ns * scale;
            }
            x += phase.ns * scale;
            if (x > at)
                chart.append(node('rect', {
                    x: at,
                    y,
                    width: x - at,
                    height,
                    fill: 'var(--line)',
                    ...withTip(
                        `${path.label}, ${phase.phase}: waiting between what ran\n${time((x - at) / scale)}`)
                }));
            chart.append(node('text', {x: Math.max(at, x) + 8, y: y + 15},
                              `${time(phase.ns)}  ${percent(safe(phase.ns, total))}`));
            y += height + 5;
        }
        y += 12;
    }
    chart.setAttribute('viewBox', `0 0 ${width} ${y}`);
    section(
        'phases', 'The step',
        'Each phase begins where the one before it ends; colors are categories of operations, pale gray is ' +
            'waiting. Taken with tracing on.',
        legend(used), chart);
}

/* ---- roofline: Williams, Waterman, Patterson 2009 ---- */

function drawRoofline() {
    const peaks = limits(), width = 1100, height = 420, left = 76 * letters, bottom = 44 * letters, top = 14 * letters;
    const points = paths.flatMap(
        (path, which) =>
            path.operations.filter(o => o.flops > 0 && o.least_bytes > 0 && o.ns > 0)
                .map(o => ({path, which, o, x: o.flops / o.least_bytes, y: 1e9 * o.flops / o.ns})));
    if (!points.length || !peaks) return;
    const ridge = peaks.flops / peaks.bandwidth, log = Math.log10;
    const low = Math.floor(log(Math.min(ridge, ...points.map(p => p.x)))),
          high = Math.ceil(log(Math.max(ridge, ...points.map(p => p.x))));
    const floor = Math.floor(log(Math.min(...points.map(p => p.y)))),
          ceiling = Math.ceil(log(1.2 * peaks.flops));
    const X = v => left + (log(v) - low) / (high - low) * (width - left - 16);
    const Y = v => height - bottom - (log(v) - floor) / (ceiling - floor) * (height - bottom - top);
    const chart = node('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'roofline'});
    for (let e = low; e <= high; e++)
        chart.append(
            node('line', {class: 'grid', x1 : X(10 ** e), x2 : X(10 ** e), y1 : top, y2 : height - bottom}),
            node('text', {
                class: 'soft',
                x: X(10 ** e),
                y: height - bottom + 18 * letters,
                'text-anchor': e === high ? 'end' : 'middle'
            },
                 String(10 ** e)));
    for (let e = floor; e <= ceiling; e++)
        chart.append(
            node('line', {class: 'grid', x1 : left, x2 : width - 16, y1 : Y(10 ** e), y2 : Y(10 ** e)}),
            node('text', {class: 'soft', x: left - 8, y: Y(10 ** e) + 4, 'text-anchor': 'end'},
                 scaled(10 ** e, 'F/s')));
    for (const [i, roof] of roofs(peaks).entries()) {
        const bend = peaks.flops / roof.rate, start = Math.max(10 ** low, 10 ** floor / roof.rate);
        chart.append(node('path', {
                         class: 'roof',
                         d: `M${X(start)},${Y(start * roof.rate)} L${X(Math.max(start, bend))},${Y(peaks.flops)} L${
                             X(10 ** high)},${Y(peaks.flops)}`
                     }),
                     node('text', {x: left + 8, y: top + (14 + 16 * i) * letters}, `${roof.name}: ${scaled(roof.rate, 'B/s')}`));
    }
    chart.append(node('text', {x: X(10 ** high) - 4, y: Y(peaks.flops) - 24, 'text-anchor': 'end'},
                      `${scaled(peaks.flops, 'FLOP/s')} ${peaks.whose}`),
                 node('text',
                      {class: 'soft', x: (left + width) / 2, y: height - 6, 'text-anchor': 'middle'},
                      'FLOP for each byte that the contract demands'));
    const longest = Math.max(...points.map(p => p.o.ns));
    points.sort((a, b) => b.o.ns - a.o.ns);
    for (const {path, which, o, x, y} of points) {
        const text = `${o.place}, ${o.pass} (${path.label})\n${time(o.ns)}, ${scaled(y, 'FLOP/s')}, ${
                         scaled(1e9 * o.least_bytes / o.ns, 'B/s')}\n` +
                     `${digits(x)} FLOP a byte, ${percent(o.share_of_limit)} of the limit${o.limit ? ', ' + o.limit : ''}`;
        chart.append(node('circle', {
            cx: X(x),
            cy: Y(y),
            r: 4 + 12 * Math.sqrt(o.ns / longest),
            stroke: color(o.category),
            'stroke-width': 2,
            fill: color(o.category),
            'fill-opacity': paths.length > 1 && which === 0 ? 0 : 0.55,
            ...withTip(text)
        }));
    }
    section(
        'roofline', 'Roofline',
        (paths.length > 1 ? `Hollow: ${paths[0].label}; filled: ${paths[1].label}. ` : '') +
            'A dot is an operation in one pass, as large as its share of the time. Its ' +
                'height is the rate at which it does the ' +
            'contract\'s work, whatever kernels did it; a line is what this machine can do where a call\'s data fit the ' +
            'level of memory that it is named after. An operation\'s limit is that of the level that its data reach.',
        legend(CATEGORIES.filter(c => points.some(p => p.o.category === c))), chart);
}

/* What the machine was measured to do, else what its data sheet says; null: neither is known. */
function limits() {
    const {measured, sheet} = bundle.peaks, known = peaks => peaks.flops > 0 && peaks.bandwidth > 0;
    if (known(measured)) return {...measured, whose: 'measured'};
    return known(sheet) ? {...sheet, whose: 'by the data sheet'} : null;
}

/* The roofs of the levels of memory, the highest first. */
function roofs(peaks) {
    const levels = [
        {name: 'L2', rate: peaks.l2_bandwidth}, {name: 'L3', rate: peaks.l3_bandwidth},
        {name: 'memory', rate: peaks.bandwidth}
    ];
    return levels.filter(level => level.rate > 0);
}
