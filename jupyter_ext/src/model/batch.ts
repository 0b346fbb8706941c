/** Runs one operation on many items, a few at a time; each item has its own result. */

export interface Result<T> {
  item: T;
  error: Error | null;
}

/** Returns the results in the order of the items; a failure of one does not stop the others. */
export async function runOnEach<T>(items: readonly T[], work: (item: T) => Promise<unknown>, atOnce = 6): Promise<Array<Result<T>>> {
  const results: Array<Result<T>> = items.map(item => ({ item, error: null }));
  let next = 0;
  const runNext = async () => {
    while (next < results.length) {
      const result = results[next++]!;
      await work(result.item).catch(error => {
        result.error = error as Error;
      });
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, runNext));
  return results;
}

/** Returns the marked ids after a click: `add` toggles one, `range` marks all from the last one on. */
export function markedAfterClick(all: readonly number[], before: ReadonlySet<number>, last: number, id: number, how: 'add' | 'range'): Set<number> {
  const after = new Set(before);
  if (how === 'add') {
    after.has(id) ? after.delete(id) : after.add(id);
    return after;
  }
  const [from, to] = [all.indexOf(last), all.indexOf(id)];
  const span = from < 0 ? [id] : all.slice(Math.min(from, to), Math.max(from, to) + 1);
  span.forEach(each => after.add(each));
  return after;
}
