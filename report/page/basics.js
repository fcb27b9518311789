'use strict';
/* What every section of the page uses. Text from the bundle only ever becomes text, never markup. */
const bundle = JSON.parse(document.getElementById('bundle').textContent);
const paths = bundle.paths;
const CATEGORIES = [
    'matrix', 'attention', 'normalization', 'activation', 'elementwise', 'embedding', 'loss', 'optimizer',
    'memory', 'communication', 'other'
];

function node(tag, attributes, ...children) {
    const svg = [ 'svg', 'g', 'rect', 'line', 'path', 'circle', 'text', 'title' ].includes(tag);
    const made =
        svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
        if (name.startsWith('on'))
            made.addEventListener(name.slice(2), value);
        else if (value !== undefined && value !== null)
            made.setAttribute(name, value);
    }
    made.append(...children.filter(child => child !== null && child !== undefined));
    return made;
}

function section(id, title, note, ...children) {
    const made = node('section', {id}, node('h2', {}, title), note ? node('p', {class: 'note'}, note) : null,
                      ...children);
    document.querySelector('main').append(made);
    document.querySelector('nav').append(node('a', {href: '#' + id}, title));
    return made;
}

/* Times as large as on a desk are the texts in drawings on a phone (style.css), and so what is left free for them. */
const letters = matchMedia('(max-width: 760px)').matches ? 20 / 12 : 1;

const color = category => `var(--${CATEGORIES.includes(category) ? category : 'other'})`;
const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);
const safe = (a, b) => b > 0 ? a / b : 0;

function digits(value, count = 3) {
    if (!Number.isFinite(value)) return '–';
    if (value === 0) return '0';
    const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
    return value.toFixed(Math.max(0, Math.min(6, count - whole)));
}

/* Of what is counted: a mean over steps may be broken. */
function count(value) {
    const whole = Math.round(value);
    return Math.abs(value - whole) < 1e-6 ? String(whole) : digits(value);
}

function scaled(value, unit, step = 1000) {
    const prefixes = step === 1000 ? [ '', 'k', 'M', 'G', 'T', 'P' ] : [ '', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi' ];
    let at = 0;
    while (Math.abs(value) >= step && at < prefixes.length - 1) {
        value /= step;
        at++;
    }
    return `${digits(value)} ${prefixes[at]}${unit}`;
}

const bytes = value => scaled(value, 'B', 1024);
const percent = share => Number.isFinite(share) ? (100 * share).toFixed(1) + ' %' : '–';

function time(ns) {
    const ms = ns / 1e6;
    if (!Number.isFinite(ms)) return '–';
    if (Math.abs(ms) >= 1000) return digits(ms / 1000, 4) + ' s';
    if (Math.abs(ms) >= 1) return digits(ms, 4) + ' ms';
    return digits(1000 * ms, 3) + ' µs';
}

/* ---- what the pointer is on ---- */

const tip = node('div', {class: 'tip', role: 'status'});
document.body.append(tip);

function showTip(event, text) {
    tip.textContent = text;
    tip.style.display = 'block';
    const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    const top = event.clientY + 18 + tip.offsetHeight > window.innerHeight
                    ? event.clientY - tip.offsetHeight - 10
                    : event.clientY + 18;
    tip.style.left = Math.max(8, left) + 'px';
    tip.style.top = top + 'px';
}

const hideTip = () => { tip.style.display = 'none'; };
const withTip = text => ({onmousemove: event => showTip(event, text), onmouseleave: hideTip});

function legend(categories) {
    return node(
        'div', {class: 'legend'},
        ...categories.map(
            category => node('span', {}, node('i', {style: `background:${color(category)}`}), category)));
}

/* ---- tables that sort by a click on a column's head ---- */

function sortRows(body, index, descending) {
    const rows = [...body.rows ].filter(row => !row.classList.contains('footer'));
    const key = row => row.cells[index].dataset.value ?? row.cells[index].textContent;
    rows.sort((a, b) => {
        const x = key(a), y = key(b), order = x - y;
        return (Number.isNaN(order) ? x.localeCompare(y) : order) * (descending ? -1 : 1);
    });
    body.prepend(...rows);
}

/* columns: {title, text, note}; rows: arrays of strings or {text, value}. The last `footers` rows stay
 * last. */
function table(columns, rows, footers = 0) {
    const body =
        node('tbody', {},
             ...rows.map((row, at) => node('tr', {class: at >= rows.length - footers ? 'footer' : null},
                                           ...row.map((cell, index) => {
                                               const text = cell.text ?? cell;
                                               return node('td', {
                                                   class: columns[index].text ? 'text' : null,
                                                   'data-value': cell.value,
                                                   title: cell.note ?? (columns[index].text ? text : null)
                                               },
                                                           text);
                                           }))));
    const heads = columns.map((column, index) => node('th', {
                                  class: column.text ? 'text' : null,
                                  title: column.note,
                                  onclick: event => {
                                      const head = event.currentTarget,
                                            descending = head.getAttribute('aria-sort') !== 'descending';
                                      heads.forEach(other => other.removeAttribute('aria-sort'));
                                      head.setAttribute('aria-sort', descending ? 'descending' : 'ascending');
                                      sortRows(body, index, descending);
                                  }
                              },
                                                      column.title));
    return node('div', {class: 'scroll'},
                node('table', {}, node('thead', {}, node('tr', {}, ...heads)), body));
}
