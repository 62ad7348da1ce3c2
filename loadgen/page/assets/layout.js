// Where everything stands in the picture, for a width in pixels.

// Above this number of processes a picture shows warps, or groups of them, in the place of processes.
export const ONE_BY_ONE = 1024;
// The most tiles in the place of processes.
const TILES = 1024;
// Sizes of a process, and how high all of them may become before smaller ones are taken.
const SIZES = [60, 52, 44, 36, 28, 20];
const TALL = 420;
const LABEL = 74;
// Where all warps are low: their numbers alone.
const SHORT_LABEL = 46;
const GAP = 14;
const ENTRY = { width: 58, line: 40, lines: 3 };
export const TILE = { width: 28, height: 32 };

// Lays out the list and the warps: where each lane, process and tile is, and how large everything is.
export function layout(setting, width) {
  const list = layoutList(setting, width);
  const warps = setting.processes > ONE_BY_ONE ? layoutTiles(setting, width) : layoutLanes(setting, width);
  const top = list.height;
  return { ...warps, list, top, width, height: top + warps.height };
}

// The places of as many entries as have room. Under the usual append window there are no more than T, one for each warp and append round.
function layoutList({ counted_entries: entries }, width) {
  const across = Math.max(1, Math.floor((width - LABEL) / ENTRY.width));
  const lines = Math.min(ENTRY.lines, Math.ceil(entries / across));
  return { ...ENTRY, label: LABEL, across, lines, room: across * lines, height: 4 + lines * ENTRY.line + 14 };
}

// The largest cells with which all warps are about as high as half a window, or the smallest.
function layoutLanes(setting, width) {
  const all = SIZES.map((size) => lanesOf(setting, width, size));
  return all.find(({ height }) => height <= TALL) ?? all.at(-1);
}

function lanesOf({ processes: n, warp_size: p, warps }, width, size) {
  const label = size === SIZES.at(-1) ? SHORT_LABEL : LABEL;
  const columns = Math.max(1, Math.min(p, Math.floor((width - label - 8) / size)));
  const lane = { width: label + columns * size + 6, height: Math.ceil(p / columns) * size + 4 };
  const across = Math.max(1, Math.min(warps, Math.floor((width + GAP) / (lane.width + GAP))));
  const down = Math.ceil(warps / across);
  const lanes = [];
  const cells = new Array(n);
  for (let warp = 1; warp <= warps; warp += 1) {
    const x = Math.floor((warp - 1) / down) * (lane.width + GAP);
    const y = ((warp - 1) % down) * (lane.height + 4);
    const members = [];
    for (let column = 0; column < p && (warp - 1) * p + column < n; column += 1) {
      const process = (warp - 1) * p + column + 1;
      cells[process - 1] = { x: x + label + (column % columns) * size, y: y + 1 + Math.floor(column / columns) * size };
      members.push(process);
    }
    lanes.push({ warp, x, y, ...lane, members });
  }
  return { lanes, cells, size, label, columns, height: down * (lane.height + 4) };
}

function layoutTiles({ warps }, width) {
  const each = Math.ceil(warps / TILES);
  const across = Math.max(1, Math.floor(width / TILE.width));
  const tiles = [];
  for (let first = 1; first <= warps; first += each) {
    const [x, y] = [(tiles.length % across) * TILE.width, Math.floor(tiles.length / across) * TILE.height];
    tiles.push({ first, last: Math.min(warps, first + each - 1), x, y });
  }
  return { tiles, height: Math.ceil(tiles.length / across) * TILE.height };
}
