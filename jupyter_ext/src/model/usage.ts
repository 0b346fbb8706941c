/** Converts series of resource use to bars of a chart and captions. */

export type Point = Array<number | null>;

export interface Bar {
  time: number;
  value: number;
  /** Of 0…1 each. */
  left: number;
  width: number;
  height: number;
}

export interface Picture {
  bars: Bar[];
  last: number;
  mean: number;
}

/** Bars of one column of points; null where nothing was measured. `top`: what is as high as can be, else the largest. */
export function picture(points: readonly Point[], column: number, start: number, end: number, step: number, top = 0): Picture | null {
  const measured = points.filter(point => point[column] !== null && point[column] !== undefined);
  if (measured.length === 0) {
    return null;
  }
  const values = measured.map(point => point[column] as number);
  const most = top || Math.max(...values) || 1;
  const length = Math.max(1, end - start);
  const bars = measured.map((point, i) => ({
    time: point[0]!,
    value: values[i]!,
    left: (point[0]! - start) / length,
    width: step / length,
    height: Math.min(1, values[i]! / most)
  }));
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return { bars, last: values[values.length - 1]!, mean };
}

/** First and last rank of each page. */
export function pages(ranks: number, size: number): Array<readonly [number, number]> {
  return Array.from({ length: Math.ceil(ranks / size) }, (_, i) => [i * size, Math.min(ranks, (i + 1) * size) - 1] as const);
}
