/** Runs one operation on many items, a few at a time; each item has its own result. */

export interface Result<T> {
  item: T;
  error: Error | null;
}

/** Results in the order of the items; a failure of one stops no other. */
export async function each<T>(items: readonly T[], work: (item: T) => Promise<unknown>, atOnce = 6): Promise<Array<Result<T>>> {
  const found: Array<Result<T>> = items.map(item => ({ item, error: null }));
  let next = 0;
  const walk = async () => {
    while (next < found.length) {
      const one = found[next++]!;
      await work(one.item).catch(error => {
        one.error = error as Error;
      });
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, walk));
  return found;
}

/** The chosen ones after a click on one: alone, added or taken away, or all from the last one on. */
export function chosen(all: readonly number[], before: ReadonlySet<number>, last: number, id: number, how: 'add' | 'range'): Set<number> {
  const after = new Set(before);
  if (how === 'add') {
    after.has(id) ? after.delete(id) : after.add(id);
    return after;
  }
  const [from, to] = [all.indexOf(last), all.indexOf(id)];
  const span = from < 0 ? [id] : all.slice(Math.min(from, to), Math.max(from, to) + 1);
  span.forEach(one => after.add(one));
  return after;
}
