/** Converts log output to lines: bounded, with carriage returns applied and colours parsed. */
import { LogRow } from './types';

export interface Line {
  /** Identifies the line; only ever grows. */
  key: number;
  run: number;
  rank: number;
  time: number;
  text: string;
  /** The next line of the same rank replaces this one. */
  redraw: boolean;
  /** True for the first line of a run. */
  startsRun: boolean;
}

export interface Piece {
  text: string;
  /** Names of styles, such as `bold red`; empty for plain text. */
  style: string;
}

export class Lines {
  readonly all: Line[] = [];
  /** The number of lines that were dropped at the beginning. */
  dropped = 0;
  private next = 0;
  private redrawn = new Map<string, number>();

  constructor(private limit: number) {}

  add(rows: readonly LogRow[]): void {
    for (const [run, rank, time, text, redraw] of rows) {
      this.addLine(run, rank, time, text, redraw === 1);
    }
    const over = this.all.length - this.limit;
    if (over > 0) {
      this.all.splice(0, over);
      this.dropped += over;
    }
  }

  /** Drops all lines. */
  clear(): void {
    this.all.length = 0;
    this.redrawn.clear();
    this.dropped = 0;
  }

  private addLine(run: number, rank: number, time: number, text: string, redraw: boolean): void {
    const source = `${run}.${rank}`;
    const key = this.redrawn.get(source);
    const index = key === undefined ? -1 : key - (this.next - this.all.length);
    const before = this.all[this.all.length - 1];
    const line: Line = { key: this.next, run, rank, time, text, redraw, startsRun: before?.run !== run };
    const replaced = this.all[index];
    if (replaced) {
      this.all[index] = { ...line, key: replaced.key, startsRun: replaced.startsRun };
    } else {
      this.all.push(line);
      this.next += 1;
    }
    if (redraw) {
      this.redrawn.set(source, replaced ? replaced.key : line.key);
    } else {
      this.redrawn.delete(source);
    }
  }
}

const COLOURS = ['black', 'red', 'green', 'yellow', 'blue', 'magenta', 'cyan', 'white'];
// eslint-disable-next-line no-control-regex
const ESCAPE = /\x1b(?:\[([0-9;?]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f\x9b]/g;

/** Splits a text into pieces of one style; drops all escapes except colours, and shows other control characters. */
export function parsePieces(text: string): Piece[] {
  const pieces: Piece[] = [];
  const style = new Set<string>();
  let last = 0;
  const add = (part: string) => {
    const clean = part.replace(CONTROL, c => (c === '\x1b' ? '' : '\ufffd'));
    if (clean) {
      pieces.push({ text: clean, style: [...style].join(' ') });
    }
  };
  for (const match of text.matchAll(ESCAPE)) {
    add(text.slice(last, match.index));
    last = match.index + match[0].length;
    if (match[2] === 'm') {
      applyCodes(style, match[1] ?? '');
    }
  }
  add(text.slice(last));
  return pieces;
}

function applyCodes(style: Set<string>, codes: string): void {
  const numbers = codes.split(';').map(Number);
  for (let i = 0; i < numbers.length; i += 1) {
    const code = numbers[i] ?? 0;
    if (code === 38 || code === 48) {
      i += numbers[i + 1] === 5 ? 2 : 4; // colours of large palettes are ignored
    } else if (code === 0) {
      style.clear();
    } else if (code === 1) {
      style.add('bold');
    } else if (code === 22) {
      style.delete('bold');
    } else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97) || code === 39) {
      COLOURS.forEach(colour => style.delete(colour));
      const colour = COLOURS[code % 10];
      if (code !== 39 && colour) {
        style.add(colour);
      }
    }
  }
}

/** Returns the indexes of lines that contain a text, ignoring case. */
export function search(lines: readonly Line[], text: string): number[] {
  const query = text.toLowerCase();
  const indexes: number[] = [];
  if (query) {
    lines.forEach((line, i) => line.text.toLowerCase().includes(query) && indexes.push(i));
  }
  return indexes;
}
