/** Converts series of resource usage to bars and captions of a chart. */

export type Point = Array<number | null>;

export interface Bar {
  time: number;
  value: number;
  /** Positions and sizes are from 0 to 1. */
  left: number;
  width: number;
  height: number;
}

export interface Chart {
  bars: Bar[];
  last: number;
  mean: number;
}

/** Returns the chart of one column of points; null without measurements. `top` is the largest possible value, if known. */
export function chartOf(points: readonly Point[], column: number, start: number, end: number, step: number, top = 0): Chart | null {
  const measured = points.filter(point => point[column] !== null && point[column] !== undefined);
  if (measured.length === 0) {
    return null;
  }
  const values = measured.map(point => point[column] as number);
  const highest = top || Math.max(...values) || 1;
  const length = Math.max(1, end - start);
  const bars = measured.map((point, i) => ({
    time: point[0]!,
    value: values[i]!,
    left: (point[0]! - start) / length,
    width: step / length,
    height: Math.min(1, values[i]! / highest)
  }));
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return { bars, last: values[values.length - 1]!, mean };
}

/** Returns the first and the last rank of each page. */
export function rankPages(ranks: number, size: number): Array<readonly [number, number]> {
  return Array.from({ length: Math.ceil(ranks / size) }, (_, i) => [i * size, Math.min(ranks, (i + 1) * size) - 1] as const);
}
