/** Forms that were begun and not handed in: kept by Lab, so that a reload, or another browser, goes on with them. */
import { Form } from './form';

export interface Draft {
  form: Form;
  /** The task file, when that was edited last. */
  text: string | null;
}

const MOST_CHARS = 64 * 1024;

/** The newest ones, as many as fit. `save` is told all of them after each change. */
export class Drafts {
  /** Resolves once what was kept before has been brought; there may be nothing to bring. */
  ready: Promise<void> = Promise.resolve();
  private kept: Array<[string, Draft]> = [];

  constructor(
    private save: (kept: Array<[string, Draft]>) => void,
    private most = MOST_CHARS
  ) {}

  /** What was kept before. What is none of ours is left out. */
  bring(kept: unknown): void {
    const found = Array.isArray(kept) ? kept.filter(one => typeof one?.[0] === 'string' && typeof one[1]?.form === 'object') : [];
    this.kept = found.filter(([key]) => !this.of(key)).concat(this.kept);
  }

  /** The draft of a file. */
  of(key: string): Draft | null {
    return this.kept.find(([known]) => known === key)?.[1] ?? null;
  }

  /** Keep it; null: it was handed in, or is as it began. */
  put(key: string, draft: Draft | null): void {
    const others = this.kept.filter(([known]) => known !== key);
    if (!draft && others.length === this.kept.length) {
      return;
    }
    this.kept = this.fitting(draft ? [...others, [key, draft]] : others);
    this.save(this.kept);
  }

  private fitting(all: Array<[string, Draft]>): Array<[string, Draft]> {
    let room = this.most;
    const fits = all.reverse().filter(one => (room -= JSON.stringify(one).length) >= 0);
    return fits.reverse();
  }
}
