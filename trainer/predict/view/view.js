// view.js: draws a complex in three dimensions. scene.h says what the object in #scene holds.
//
// The picture is made on the CPU with a depth buffer, so it needs no WebGL and is the same in every
// browser. A pixel keeps its depth, its brightness and the item that it shows. So colours can
// change without new geometry, and the item under the pointer is known.
"use strict";

const scene = JSON.parse(document.getElementById("scene").textContent);
const canvas = document.getElementById("view");
const context = canvas.getContext("2d");

// Chains take these colours in turn.
const PALETTE = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee7733",
                 "#009988", "#bb5566", "#997700", "#6f4fa0", "#8c8c8c"];
const ELEMENTS = { N: "#3050f8", O: "#e8281e", S: "#d4b000", P: "#ff8000", F: "#57b857",
                   CL: "#3fc03f", BR: "#a62929", I: "#940094", H: "#d8d8d8", SE: "#e0a000" };
const METAL = "#9a6ad6";
const NOT_METALS = ["B", "SI", "AS", "TE"];

// -- items: residues, then atoms; what a pixel shows

const RESIDUE = 11, ATOM = 7; // numbers of a row
const nResidue = scene.residues.length / RESIDUE, nAtom = scene.atoms.length / ATOM;

function residueAt(i) {
  const [chain, number, component, plddt, isNucleic, x, y, z, u, v, w] =
    scene.residues.slice(i * RESIDUE, (i + 1) * RESIDUE);
  return { item: i, chain, number, component, plddt, isNucleic,
           place: [x / 100, y / 100, z / 100], direction: [u / 100, v / 100, w / 100] };
}

function atomAt(i) {
  const [chain, number, component, plddt, x, y, z] = scene.atoms.slice(i * ATOM, (i + 1) * ATOM);
  return { item: nResidue + i, chain, number, component, plddt, name: scene.names[2 * i],
           element: scene.names[2 * i + 1], place: [x / 100, y / 100, z / 100] };
}

const residues = Array.from({ length: nResidue }, (_, i) => residueAt(i));
const atoms = Array.from({ length: nAtom }, (_, i) => atomAt(i));
const items = residues.concat(atoms);
const chainColour = (chain) => PALETTE[chain % PALETTE.length];

function plddtColour(plddt) {
  return (scene.classes.find((one) => plddt >= one[0]) || scene.classes.at(-1))[2];
}

function atomColour(atom) {
  if (atom.element === "C") return chainColour(atom.chain);
  return ELEMENTS[atom.element] || (NOT_METALS.includes(atom.element) ? "#c08060" : METAL);
}

const colourings = {
  plddt: (item) => plddtColour(item.plddt),
  chain: (item) => (item.element ? atomColour(item) : chainColour(item.chain)),
};

// -- vectors

const add = (a, b, k) => [a[0] + k * b[0], a[1] + k * b[1], a[2] + k * b[2]];
const subtract = (a, b) => add(a, b, -1);
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2],
                         a[0] * b[1] - a[1] * b[0]];
const size = (a) => Math.sqrt(dot(a, a));
const mixed = (a, b, t) => add(add([0, 0, 0], a, 1 - t), b, t);

function unit(a) {
  const length = size(a);
  return length > 1e-6 ? [a[0] / length, a[1] / length, a[2] / length] : null;
}

// A direction that is at right angles to another.
function across(a, direction) {
  return unit(add(a, direction, -dot(a, direction))) ||
         unit(cross(direction, [1, 0, 0])) || unit(cross(direction, [0, 1, 0]));
}

// -- geometry: balls, sticks and triangles

const balls = [];  // {place, radius, item}
const sticks = []; // {from, to, radius, items: of both halves, shift: in radii, on the screen}
const vertices = [], normals = [], corners = []; // corners: three vertices and an item

// Distances between CA atoms decide what is a helix or a strand, as in P-SEA (Labesse et al. 1997).
function structureOf(chain) {
  const kinds = chain.map(() => "coil");
  const between = (i, j) => size(subtract(chain[i].place, chain[j].place));
  const mark = (kind, least, most, shortest) => {
    let begin = -1, end = -1;
    const finish = () => {
      if (begin >= 0 && end - begin + 1 >= shortest) kinds.fill(kind, begin, end + 1);
    };
    for (let i = 0; i + 3 < chain.length; i++) {
      const d = [between(i, i + 2), between(i, i + 3)];
      if (d.some((value, k) => value < least[k] || value > most[k])) continue;
      if (begin < 0 || i > end) {
        finish();
        begin = i;
      }
      end = i + 3;
    }
    finish();
  };
  if (!chain[0].isNucleic) {
    mark("strand", [6, 9], [7.4, 11], 4);
    mark("helix", [4.9, 4.6], [6.1, 6], 5);
  }
  return kinds;
}

const WIDTHS = { coil: 0.32, helix: 1.3, strand: 1.1 };
const THICKNESS = 0.26, NUCLEIC_WIDTH = 0.9;

// Half widths of the ribbon before and after each residue; they differ where an arrow begins.
function widthsOf(chain, kinds) {
  return chain.map((one, i) => {
    if (one.isNucleic) return [NUCLEIC_WIDTH, NUCLEIC_WIDTH];
    const width = WIDTHS[kinds[i]];
    if (kinds[i] !== "strand") return [width, width];
    if (kinds[i + 1] !== "strand") return [WIDTHS.coil, WIDTHS.coil];
    return [width, kinds[i + 2] !== "strand" ? 2 * width : width];
  });
}

// The sides of neighbours point the same way, so a ribbon does not twist by half a turn.
function sidesOf(chain) {
  let last = null;
  return chain.map((one) => {
    let side = unit(one.direction) || last || [0, 0, 1];
    if (last && dot(side, last) < 0) side = add([0, 0, 0], side, -1);
    return (last = side);
  });
}

function curve(p, t) { // Catmull and Rom's, between p[1] and p[2]
  return [0, 1, 2].map((c) => 0.5 * (2 * p[1][c] + (p[2][c] - p[0][c]) * t +
    (2 * p[0][c] - 5 * p[1][c] + 4 * p[2][c] - p[3][c]) * t * t +
    (3 * p[1][c] - p[0][c] - 3 * p[2][c] + p[3][c]) * t * t * t));
}

// Adds a ring of vertices, and joins it with the one before. One vertex is THICKNESS from the
// centre line along `up`, and one `width` along `side`.
function addRing(ring, isFirst, item) {
  const { place, side, up, width, nSide } = ring;
  const begin = vertices.length;
  const thickness = Math.min(THICKNESS, width);
  for (let k = 0; k < nSide; k++) {
    const angle = 2 * Math.PI * k / nSide, c = Math.cos(angle), s = Math.sin(angle);
    vertices.push(add(add(place, side, width * c), up, thickness * s));
    normals.push(unit(add(add([0, 0, 0], side, c / width), up, s / thickness)));
  }
  for (let k = 0; k < nSide && !isFirst; k++) {
    const next = (k + 1) % nSide, a = begin + k, b = begin + next;
    corners.push([a - nSide, b - nSide, a, item], [b - nSide, b, a, item]);
  }
}

function addRibbon(chain) {
  const kinds = structureOf(chain), widths = widthsOf(chain, kinds), sides = sidesOf(chain);
  const nStep = nResidue > 1500 ? 3 : 6, nSide = nResidue > 1500 ? 6 : 10;
  const at = (i) => chain[Math.max(0, Math.min(chain.length - 1, i))].place;
  // Strands are pleated; their ribbon is not.
  const smooth = (i) => (kinds[i] === "strand"
    ? mixed(at(i), mixed(at(i - 1), at(i + 1), 0.5), 0.5) : at(i));
  let tangent = [1, 0, 0];
  for (let i = 0; i + 1 < chain.length; i++) {
    const points = [smooth(i - 1), smooth(i), smooth(i + 1), smooth(i + 2)];
    const from = widths[i][1], to = widths[i + 1][0];
    for (let k = 0; k <= nStep; k++) {
      const t = k / nStep, ahead = subtract(curve(points, t + 0.01), curve(points, t - 0.01));
      tangent = unit(ahead) || tangent;
      const side = across(mixed(sides[i], sides[i + 1], t), tangent);
      // A residue has the halves of the ribbon on both sides of it.
      addRing({ place: curve(points, t), side, up: cross(tangent, side), nSide,
                width: from + (to - from) * t }, k === 0,
              chain[t <= 0.5 ? i : i + 1].item);
    }
  }
}

function addPolymer(chain) {
  if (chain.length > 1) {
    addRibbon(chain);
  } else {
    balls.push({ place: chain[0].place, radius: 1, item: chain[0].item });
  }
  for (const one of chain) {
    if (!one.isNucleic || !unit(one.direction)) continue;
    sticks.push({ from: one.place, to: add(one.place, one.direction, 1), radius: 0.35,
                  items: [one.item, one.item], shift: 0 });
  }
}

function addPolymers() {
  let run = [];
  for (const one of residues) {
    const last = run.at(-1);
    if (last && (last.chain !== one.chain || last.number + 1 !== one.number ||
                 last.isNucleic !== one.isNucleic)) {
      addPolymer(run);
      run = [];
    }
    run.push(one);
  }
  if (run.length) addPolymer(run);
}

// An atom without bonds is an ion, or the only atom of its component.
function addAtoms() {
  const isBonded = new Uint8Array(nAtom);
  for (let k = 0; k < scene.bonds.length; k += 3) {
    const [a, b, order] = scene.bonds.slice(k, k + 3);
    isBonded[a] = isBonded[b] = 1;
    const shifts = order === 1 ? [0] : order === 2 ? [-1.5, 1.5] : [-2.2, 0, 2.2];
    for (const shift of shifts) {
      sticks.push({ from: atoms[a].place, to: atoms[b].place, radius: order === 1 ? 0.18 : 0.1,
                    items: [atoms[a].item, atoms[b].item], shift });
    }
  }
  atoms.forEach((atom, i) => {
    balls.push({ place: atom.place, radius: isBonded[i] ? 0.34 : 1.1, item: atom.item });
  });
}

addPolymers();
addAtoms();
const radius = 2 + items.reduce((most, item) => Math.max(most, size(item.place)), 4);

// -- the camera

// The direction in which the items spread most, at right angles to `axis` if there is one.
function spread(axis) {
  let best = [0.6, 0.5, 0.4];
  for (let k = 0; k < 40; k++) {
    let sum = [0, 0, 0];
    for (const item of items) sum = add(sum, item.place, dot(item.place, best));
    if (axis) sum = add(sum, axis, -dot(sum, axis));
    best = unit(sum) || best;
  }
  return axis ? across(best, axis) : best;
}

// Seen along the direction in which it is thinnest, with its length from left to right.
const length = spread(null), breadth = spread(length);
const firstTurn = [...length, ...breadth, ...cross(length, breadth)];
let turn = firstTurn; // rows of a rotation
let zoom = 1, shiftX = 0, shiftY = 0;

function rotate(x, y) { // by angles around the axes of the screen
  const [cx, sx, cy, sy] = [Math.cos(y), Math.sin(y), Math.cos(x), Math.sin(x)];
  const by = [cy, 0, sy, sx * sy, cx, -sx * cy, -cx * sy, sx, cx * cy];
  turn = turn.map((_, k) => {
    const row = 3 * Math.floor(k / 3), column = k % 3;
    return by[row] * turn[column] + by[row + 1] * turn[3 + column] + by[row + 2] * turn[6 + column];
  });
}

const turned = (p) => [turn[0] * p[0] + turn[1] * p[1] + turn[2] * p[2],
                       turn[3] * p[0] + turn[4] * p[1] + turn[5] * p[2],
                       turn[6] * p[0] + turn[7] * p[1] + turn[8] * p[2]];

// -- pixels

let width = 0, height = 0, scale = 1, depth, light, shown; // pixels; `shown` is an item or -1
const LIGHT = unit([-0.35, 0.5, 0.8]);
const brightness = (x, y, z) => 0.42 + 0.58 * Math.max(0, x * LIGHT[0] + y * LIGHT[1] + z * LIGHT[2]);

// Coordinates are pixels to the right, up and towards the viewer.
function onScreen(p) {
  const [x, y, z] = turned(p);
  return [width / 2 + (x + shiftX) * scale, height / 2 - (y + shiftY) * scale, z * scale];
}

function put(at, z, bright, item) {
  if (z <= depth[at]) return;
  depth[at] = z;
  light[at] = bright;
  shown[at] = item;
}

function box(low, high, end) {
  return [Math.max(0, Math.floor(low)), Math.min(end - 1, Math.ceil(high))];
}

function drawBall(ball) {
  const [cx, cy, cz] = onScreen(ball.place), r = ball.radius * scale;
  const [x0, x1] = box(cx - r, cx + r, width), [y0, y1] = box(cy - r, cy + r, height);
  for (let y = y0; y <= y1; y++) {
    for (let x = x0; x <= x1; x++) {
      const dx = x - cx, dy = y - cy, left = r * r - dx * dx - dy * dy;
      if (left < 0) continue;
      const dz = Math.sqrt(left);
      put(y * width + x, cz + dz, brightness(dx / r, -dy / r, dz / r), ball.item);
    }
  }
}

function drawStick(stick) {
  const [a, b] = [onScreen(stick.from), onScreen(stick.to)], r = stick.radius * scale;
  const along = [b[0] - a[0], b[1] - a[1]], square = along[0] ** 2 + along[1] ** 2;
  const k = square > 0 ? stick.shift * r / Math.sqrt(square) : 0;
  a[0] -= along[1] * k;
  a[1] += along[0] * k;
  const bx = a[0] + along[0], by = a[1] + along[1];
  const [x0, x1] = box(Math.min(a[0], bx) - r, Math.max(a[0], bx) + r, width);
  const [y0, y1] = box(Math.min(a[1], by) - r, Math.max(a[1], by) + r, height);
  for (let y = y0; y <= y1; y++) {
    for (let x = x0; x <= x1; x++) {
      const share = ((x - a[0]) * along[0] + (y - a[1]) * along[1]) / square;
      const t = square > 0 ? Math.max(0, Math.min(1, share)) : 0;
      const dx = x - a[0] - t * along[0], dy = y - a[1] - t * along[1];
      const left = r * r - dx * dx - dy * dy;
      if (left < 0) continue;
      const dz = Math.sqrt(left);
      put(y * width + x, a[2] + t * (b[2] - a[2]) + dz, brightness(dx / r, -dy / r, dz / r),
          stick.items[t < 0.5 ? 0 : 1]);
    }
  }
}

function drawTriangle(a, b, c, bright, item) {
  const area = (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
  if (Math.abs(area) < 1e-6) return;
  const [x0, x1] = box(Math.min(a[0], b[0], c[0]), Math.max(a[0], b[0], c[0]), width);
  const [y0, y1] = box(Math.min(a[1], b[1], c[1]), Math.max(a[1], b[1], c[1]), height);
  for (let y = y0; y <= y1; y++) {
    for (let x = x0; x <= x1; x++) {
      const u = ((x - a[0]) * (c[1] - a[1]) - (y - a[1]) * (c[0] - a[0])) / area;
      const v = ((b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0])) / area;
      if (u < -1e-3 || v < -1e-3 || u + v > 1.001) continue;
      put(y * width + x, a[2] + u * (b[2] - a[2]) + v * (c[2] - a[2]),
          bright[0] + u * (bright[1] - bright[0]) + v * (bright[2] - bright[0]), item);
    }
  }
}

function drawRibbons() {
  const places = vertices.map(onScreen);
  const bright = normals.map((normal) => {
    const [x, y, z] = turned(normal);
    return z >= 0 ? brightness(x, y, z) : brightness(-x, -y, -z); // the inside of an end
  });
  for (const [a, b, c, item] of corners) {
    drawTriangle(places[a], places[b], places[c], [bright[a], bright[b], bright[c]], item);
  }
}

// -- colours

let colours = []; // of items

const channels = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

function recolour() {
  const colouring = document.querySelector("input[name=colouring]:checked").value;
  colours = items.map((item) => channels(colourings[colouring](item)));
  const key = document.getElementById("key");
  const rows = colouring === "plddt"
    ? scene.classes.map(([least, name, colour]) => [`${name} (≥ ${least})`, colour])
    : scene.chains.slice(0, 40).map((id, chain) => [id, chainColour(chain)]);
  key.replaceChildren(...rows.map(([text, colour]) => {
    const span = document.createElement("span");
    span.textContent = text;
    span.style.borderLeft = `14px solid ${colour}`;
    return span;
  }));
}

// Far parts fade, and an edge in front of something far behind it is dark.
function shade(image) {
  const reach = radius * scale, edge = 2.5 * scale;
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at++) {
      if (shown[at] < 0) continue;
      const right = x + 1 < width ? depth[at + 1] : depth[at];
      const below = y + 1 < height ? depth[at + width] : depth[at];
      const isEdge = Math.abs(depth[at] - right) > edge || Math.abs(depth[at] - below) > edge;
      const near = Math.max(0, Math.min(1, (depth[at] + reach) / (2 * reach)));
      const bright = light[at] * (isEdge ? 0.55 : 1), colour = colours[shown[at]];
      for (let c = 0; c < 3; c++) image.data[4 * at + c] = colour[c] * bright;
      image.data[4 * at + 3] = 255 * (0.45 + 0.55 * near);
    }
  }
}

// -- drawing

let isWaiting = false, restTimer = 0;

// While something moves a pixel of the picture is one of the page; at rest it is finer.
function draw(isMoving) {
  const fine = isMoving ? 1 : Math.min(2, 1 + (window.devicePixelRatio || 1));
  width = Math.max(1, Math.round(canvas.clientWidth * fine));
  height = Math.max(1, Math.round(canvas.clientHeight * fine));
  scale = zoom * Math.min(width, height) / (2 * radius);
  canvas.width = width;
  canvas.height = height;
  depth = new Float32Array(width * height).fill(-Infinity);
  light = new Float32Array(width * height);
  shown = new Int32Array(width * height).fill(-1);
  drawRibbons();
  sticks.forEach(drawStick);
  balls.forEach(drawBall);
  const image = context.createImageData(width, height);
  shade(image);
  context.putImageData(image, 0, 0);
}

function move() {
  clearTimeout(restTimer);
  restTimer = setTimeout(() => draw(false), 200);
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => {
    isWaiting = false;
    draw(true);
  });
}

// -- what a user does

function describe(event) {
  const frame = canvas.getBoundingClientRect();
  const x = Math.floor((event.clientX - frame.left) / frame.width * width);
  const y = Math.floor((event.clientY - frame.top) / frame.height * height);
  const item = items[x >= 0 && y >= 0 && x < width && y < height ? shown[y * width + x] : -1];
  document.getElementById("at").textContent = item
    ? `chain ${scene.chains[item.chain]}, ${scene.components[item.component]} ${item.number}` +
      `${item.name ? " " + item.name : ""}, pLDDT ${item.plddt}`
    : "";
}

const pixelsToAngles = (pixels) => pixels * 0.01;

canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  canvas.focus();
});
canvas.addEventListener("pointermove", (event) => {
  if (!event.buttons) {
    describe(event);
    return;
  }
  if (event.shiftKey || event.buttons !== 1) {
    const perPixel = 2 * radius / zoom / Math.min(canvas.clientWidth, canvas.clientHeight);
    shiftX += event.movementX * perPixel;
    shiftY -= event.movementY * perPixel;
  } else {
    rotate(pixelsToAngles(event.movementX), pixelsToAngles(event.movementY));
  }
  move();
});
canvas.addEventListener("contextmenu", (event) => event.preventDefault());

function magnify(by) {
  zoom = Math.max(0.2, Math.min(40, zoom * by));
  move();
}

// The page scrolls with the wheel until the view has the focus.
canvas.addEventListener("wheel", (event) => {
  if (document.activeElement !== canvas) return;
  event.preventDefault();
  magnify(Math.exp(-Math.sign(event.deltaY) * 0.15));
}, { passive: false });

function reset() {
  turn = firstTurn;
  zoom = 1;
  shiftX = shiftY = 0;
  move();
}
canvas.addEventListener("dblclick", reset);

canvas.addEventListener("keydown", (event) => {
  const turns = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1],
                  ArrowDown: [0, 0.1] }[event.key];
  if (turns) {
    rotate(...turns);
    move();
  } else if (event.key === "+" || event.key === "-") {
    magnify(event.key === "+" ? 1.2 : 1 / 1.2);
  } else if (event.key === "0") {
    reset();
  } else {
    return;
  }
  event.preventDefault();
});

for (const input of document.querySelectorAll("input[name=colouring]")) {
  input.addEventListener("change", () => {
    recolour();
    draw(false);
  });
}

new ResizeObserver(() => move()).observe(canvas);
recolour();
draw(false);
