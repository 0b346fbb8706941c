/** Computes which rows of a long list must be drawn. */

export interface Span {
  first: number;
  /** One past the last. */
  end: number;
}

/** Returns the rows that are visible at a scroll position, and a few more, so that fast scrolling shows no gap. */
export function visibleRows(top: number, height: number, row: number, count: number, more = 8): Span {
  const first = Math.max(0, Math.floor(top / row) - more);
  const end = Math.min(count, Math.ceil((top + height) / row) + more);
  return { first: Math.min(first, Math.max(0, end)), end };
}

/** Returns the scroll position at which a row is visible; the current one if the row is visible. */
export function scrollPositionFor(index: number, top: number, height: number, row: number): number {
  if (index * row < top) {
    return index * row;
  }
  return Math.max(top, (index + 1) * row - height);
}
