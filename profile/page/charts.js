/* ---- the step as stacked bars: a bar for each phase of each path, in pieces by category ---- */

function drawPhases() {
    const used = CATEGORIES.filter(c => paths.some(p => p.phases.some(f => f.categories.some(k => k.category === c))));
    const most = Math.max(...paths.map(path => sum(path.phases, phase => phase.ms)), 1e-9);
    const left = 150, right = 110, width = 1100, scale = (width - left - right) / most, height = 22;
    const chart = node('svg', {viewBox: `0 0 ${width} 10`, role: 'img', 'aria-label': 'the step by phase and category'});
    let y = 6;
    for (const path of paths) {
        const total = sum(path.phases, phase => phase.ms);
        chart.append(node('text', {x: 0, y: y + 15, 'font-weight': 600}, `${path.label}: ${time(total)}`));
        y += 24;
        let x = left;
        for (const phase of path.phases) {
            chart.append(node('text', {x: left - 10, y: y + 15, 'text-anchor': 'end', class: 'soft'}, phase.name));
            let at = x;
            for (const piece of phase.categories) {
                const text = `${path.label}, ${phase.name}: ${piece.category}\n${time(piece.ms)}, ` +
                    `${percent(safe(piece.ms, phase.ms))} of the phase, ${percent(safe(piece.ms, total))} of the step`;
                chart.append(node('rect', {x: at, y, width: Math.max(0, piece.ms * scale), height,
                                           fill: color(piece.category), ...withTip(text)}));
                at += piece.ms * scale;
            }
            x += phase.ms * scale;
            chart.append(node('text', {x: Math.max(at, x) + 8, y: y + 15},
                              `${time(phase.ms)}  ${percent(safe(phase.ms, total))}`));
            y += height + 5;
        }
        y += 12;
    }
    chart.setAttribute('viewBox', `0 0 ${width} ${y}`);
    section('phases', 'The step', 'Each phase begins where the one before it ends; the colors are categories of operations. ' +
            'Times of operations are taken with tracing on, the figures above with it off.', legend(used), chart);
}

/* ---- roofline: Williams, Waterman, Patterson 2009 ---- */

function drawRoofline() {
    const peaks = bundle.peaks.measured, width = 1100, height = 420, left = 76, bottom = 44, top = 14;
    const points = paths.flatMap((path, which) => path.operations.filter(o => o.flops > 0 && o.bytes > 0 && o.ms > 0).map(o =>
        ({path, which, o, x: o.flops / o.bytes, y: 1000 * o.flops / o.ms})));
    if (!points.length) return;
    const ridge = peaks.flops / peaks.bandwidth, log = Math.log10;
    const low = Math.floor(log(Math.min(ridge, ...points.map(p => p.x)))), high = Math.ceil(log(Math.max(ridge, ...points.map(p => p.x))));
    const floor = Math.floor(log(Math.min(...points.map(p => p.y)))), ceiling = Math.ceil(log(1.2 * peaks.flops));
    const X = v => left + (log(v) - low) / (high - low) * (width - left - 16);
    const Y = v => height - bottom - (log(v) - floor) / (ceiling - floor) * (height - bottom - top);
    const chart = node('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'roofline'});
    for (let e = low; e <= high; e++)
        chart.append(node('line', {class: 'grid', x1: X(10 ** e), x2: X(10 ** e), y1: top, y2: height - bottom}),
                     node('text', {class: 'soft', x: X(10 ** e), y: height - bottom + 18, 'text-anchor': 'middle'}, String(10 ** e)));
    for (let e = floor; e <= ceiling; e++)
        chart.append(node('line', {class: 'grid', x1: left, x2: width - 16, y1: Y(10 ** e), y2: Y(10 ** e)}),
                     node('text', {class: 'soft', x: left - 8, y: Y(10 ** e) + 4, 'text-anchor': 'end'}, scaled(10 ** e, 'F/s')));
    const start = Math.max(10 ** low, 10 ** floor / peaks.bandwidth);
    chart.append(node('path', {class: 'roof', d: `M${X(start)},${Y(start * peaks.bandwidth)} L${X(ridge)},${Y(peaks.flops)} L${X(10 ** high)},${Y(peaks.flops)}`}),
                 node('text', {x: X(10 ** high) - 4, y: Y(peaks.flops) - 7, 'text-anchor': 'end'}, `${scaled(peaks.flops, 'FLOP/s')} measured`),
                 node('text', {x: X(ridge) - 10, y: Y(peaks.flops) - 7, 'text-anchor': 'end'}, `${scaled(peaks.bandwidth, 'B/s')} measured`),
                 node('text', {class: 'soft', x: (left + width) / 2, y: height - 6, 'text-anchor': 'middle'}, 'FLOP for each byte that the contract demands'));
    const longest = Math.max(...points.map(p => p.o.ms));
    points.sort((a, b) => b.o.ms - a.o.ms);
    for (const {path, which, o, x, y} of points) {
        const text = `${o.place}, ${o.pass} (${path.label})\n${time(o.ms)}, ${scaled(y, 'FLOP/s')}, ${scaled(1000 * o.bytes / o.ms, 'B/s')}\n` +
            `${digits(x)} FLOP a byte, ${percent(share(o))} of the limit`;
        chart.append(node('circle', {cx: X(x), cy: Y(y), r: 4 + 12 * Math.sqrt(o.ms / longest), stroke: color(o.category),
            'stroke-width': 2, fill: color(o.category), 'fill-opacity': paths.length > 1 && which === 0 ? 0 : 0.55, ...withTip(text)}));
    }
    section('roofline', 'Roofline', (paths.length > 1 ? `Hollow: ${paths[0].label}; filled: ${paths[1].label}. ` : '') +
            'A dot is an operation in one pass, as large as its share of the time. Its height is the rate at which it does the ' +
            'contract\'s work, whatever kernels did it; the line is what this machine was measured to do.',
            legend(CATEGORIES.filter(c => points.some(p => p.o.category === c))), chart);
}

/* The share of the machine's limit that an operation reaches, as in C: work_share. */
function share(o) {
    const peaks = bundle.peaks.measured;
    return safe(1000 * Math.max(o.flops / peaks.flops, o.bytes / peaks.bandwidth), o.ms);
}

/* ---- timeline of one step, on a canvas: there may be thousands of kernels ---- */

function drawTimeline() {
    for (const path of paths.filter(p => p.timeline && p.timeline.tracks.length)) {
        const canvas = node('canvas', {tabindex: 0, 'aria-label': `timeline of a step, ${path.label}`});
        const view = timelineView(path.timeline, canvas);
        const which = paths.length > 1 ? ', ' + path.label : '';
        section('timeline-' + paths.indexOf(path), 'Timeline' + which,
                'Drag over a stretch to look into it, double-click for the whole. The trace file holds the same with all its ' +
                'fields, for Perfetto or chrome://tracing.', canvas);
        view.draw();
        window.addEventListener('resize', view.draw);
    }
}

function timelineView(timeline, canvas) {
    const row = 19, gap = 8, left = 128, axis = 20;
    const lanes = [];
    let y = axis, end = 0;
    for (const track of timeline.tracks) {
        const depth = Math.max(0, ...track.events.map(e => e[4])) + 1;
        lanes.push({track, y, depth});
        y += depth * row + gap;
        for (const e of track.events) end = Math.max(end, e[1] + e[2]);
    }
    const state = {from: 0, to: end || 1, drag: null}, style = getComputedStyle(document.documentElement);
    const paint = name => style.getPropertyValue('--' + name).trim();
    canvas.style.height = y + 'px';
    const at = x => state.from + (x - left) / (canvas.clientWidth - left) * (state.to - state.from);

    function drawEvents(pen, width) {
        const scale = (width - left) / (state.to - state.from);
        for (const {track, y: top} of lanes) {
            let painted = -1, level = -1; // what falls on a pixel that is painted already is left out
            for (const [name, start, length, category, depth] of track.events) {
                if (start > state.to || start + length < state.from) continue;
                const x = Math.max(left, left + (start - state.from) * scale);
                const right = Math.min(width, left + (start + length - state.from) * scale);
                if (depth === level && right <= painted + 0.3) continue;
                pen.fillStyle = paint(CATEGORIES.includes(category) ? category : 'other');
                pen.fillRect(x, top + depth * row, Math.max(0.6, right - x - 0.4), row - 2);
                painted = right;
                level = depth;
                if (right - x < 34) continue;
                pen.fillStyle = '#fff';
                pen.fillText(timeline.names[name], x + 4, top + depth * row + 13, right - x - 6);
            }
        }
    }

    function draw() {
        const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = y;
        canvas.width = width * ratio;
        canvas.height = height * ratio;
        const pen = canvas.getContext('2d');
        pen.scale(ratio, ratio);
        pen.font = '11px system-ui, "DejaVu Sans", sans-serif';
        const ticks = 8, step = (state.to - state.from) / ticks;
        for (let i = 0; i <= ticks; i++) {
            const x = left + i * (width - left) / ticks;
            pen.fillStyle = paint('line');
            pen.fillRect(x, axis - 4, 1, height);
            pen.fillStyle = paint('soft');
            pen.textAlign = i === ticks ? 'right' : 'left';
            pen.fillText(time((state.from + i * step) / 1000), i === ticks ? x - 2 : x + 2, 11);
        }
        pen.textAlign = 'left';
        for (const lane of lanes) {
            pen.fillStyle = paint('soft');
            pen.fillText(lane.track.name, 0, lane.y + 13, left - 10);
        }
        drawEvents(pen, width);
        if (!state.drag) return;
        pen.fillStyle = paint('accent');
        pen.globalAlpha = 0.18;
        pen.fillRect(Math.min(...state.drag), 0, Math.abs(state.drag[1] - state.drag[0]), height);
    }

    function under(event) {
        const when = at(event.offsetX), lane = lanes.find(l => event.offsetY >= l.y && event.offsetY < l.y + l.depth * row);
        const depth = lane ? Math.floor((event.offsetY - lane.y) / row) : -1, slack = (state.to - state.from) / canvas.clientWidth;
        return lane && lane.track.events.find(e => e[4] === depth && e[1] <= when + slack && when - slack <= e[1] + e[2]);
    }

    canvas.addEventListener('mousedown', event => { if (event.offsetX > left) state.drag = [event.offsetX, event.offsetX]; });
    canvas.addEventListener('mousemove', event => {
        if (state.drag) { state.drag[1] = Math.max(left, event.offsetX); draw(); }
        const e = under(event);
        if (e) showTip(event, `${timeline.names[e[0]]}\n${time(e[2] / 1000)}, from ${time(e[1] / 1000)}\n${e[3]}`);
        else hideTip();
    });
    canvas.addEventListener('mouseleave', hideTip);
    window.addEventListener('mouseup', () => {
        if (!state.drag) return;
        const [a, b] = state.drag.map(at).sort((p, q) => p - q), wide = Math.abs(state.drag[1] - state.drag[0]) > 4;
        state.drag = null;
        if (wide) { state.from = a; state.to = b; }
        draw();
    });
    canvas.addEventListener('dblclick', () => { state.from = 0; state.to = end || 1; draw(); });
    return {draw};
}
