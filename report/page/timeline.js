/* ---- timeline of one step, on a canvas: there may be thousands of kernels ---- */

function drawTimeline() {
    for (const path of paths.filter(p => p.timeline && p.timeline.tracks.length)) {
        const canvas = node('canvas', {tabindex: 0, 'aria-label': `timeline of a step, ${path.label}`});
        const view = timelineView(path.timeline, canvas);
        const which = paths.length > 1 ? ', ' + path.label : '';
        section(
            'timeline-' + paths.indexOf(path), 'Timeline' + which,
            'Drag over a stretch to look into it, double-click for the whole. The trace file ' +
                'holds the same with all its ' +
                'fields, for Perfetto or chrome://tracing.',
            canvas);
        view.draw();
        window.addEventListener('resize', view.draw);
        matchMedia('(prefers-color-scheme: dark)').addEventListener('change', view.draw);
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

    function fitted(pen, text, room) {
        if (pen.measureText(text).width <= room) return text;
        let kept = Math.min(text.length - 1, Math.floor(room / 4));
        while (kept > 0 && pen.measureText(text.slice(0, kept) + '…').width > room) kept--;
        return kept > 1 ? text.slice(0, kept) + '…' : '';
    }

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
                pen.fillText(fitted(pen, timeline.names[name], right - x - 8), x + 4, top + depth * row + 13);
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
        const ticks = Math.max(1, Math.min(8, Math.floor((width - left) / 80))), step = (state.to - state.from) / ticks;
        for (let i = 0; i <= ticks; i++) {
            const x = left + i * (width - left) / ticks;
            pen.fillStyle = paint('line');
            pen.fillRect(x, axis - 4, 1, height);
            pen.fillStyle = paint('soft');
            pen.textAlign = i === ticks ? 'right' : 'left';
            pen.fillText(time(1000 * (state.from + i * step)), i === ticks ? x - 2 : x + 2, 11);
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
        const when = at(event.offsetX),
              lane = lanes.find(l => event.offsetY >= l.y && event.offsetY < l.y + l.depth * row);
        const depth = lane ? Math.floor((event.offsetY - lane.y) / row) : -1,
              slack = (state.to - state.from) / canvas.clientWidth;
        return lane && lane.track.events.find(e => e[4] === depth && e[1] <= when + slack &&
                                                   when - slack <= e[1] + e[2]);
    }

    canvas.addEventListener('mousedown', event => {
        if (event.offsetX > left) state.drag = [ event.offsetX, event.offsetX ];
    });
    canvas.addEventListener('mousemove', event => {
        if (state.drag) {
            state.drag[1] = Math.max(left, event.offsetX);
            draw();
        }
        const e = under(event);
        if (e)
            showTip(event,
                    `${timeline.names[e[0]]}\n${time(1000 * e[2])}, from ${time(1000 * e[1])}\n${e[3]}`);
        else
            hideTip();
    });
    canvas.addEventListener('mouseleave', hideTip);
    window.addEventListener('mouseup', () => {
        if (!state.drag) return;
        const [a, b] = state.drag.map(at).sort((p, q) => p - q),
                  wide = Math.abs(state.drag[1] - state.drag[0]) > 4;
        state.drag = null;
        if (wide) {
            state.from = a;
            state.to = b;
        }
        draw();
    });
    canvas.addEventListener('dblclick', () => {
        state.from = 0;
        state.to = end || 1;
        draw();
    });
    return {draw};
}
