/** Saves forms that are not submitted yet, so that they survive a reload or another browser. */
import { Form } from './form';

export interface Draft {
  form: Form;
  /** The task file, when that was edited last. */
  text: string | null;
}

const MOST_CHARS = 64 * 1024;

/** Keeps the newest drafts, as many as fit. `save` is called with all of them after each change. */
export class Drafts {
  /** Resolves once saved drafts are loaded. */
  ready: Promise<void> = Promise.resolve();
  private drafts: Array<[string, Draft]> = [];

  constructor(
    private save: (drafts: Array<[string, Draft]>) => void,
    private most = MOST_CHARS
  ) {}

  /** Adds saved drafts; invalid entries are skipped. */
  bring(drafts: unknown): void {
    const found = Array.isArray(drafts) ? drafts.filter(one => typeof one?.[0] === 'string' && typeof one[1]?.form === 'object') : [];
    this.drafts = found.filter(([key]) => !this.of(key)).concat(this.drafts);
  }

  /** The draft of a file. */
  of(key: string): Draft | null {
    return this.drafts.find(([other]) => other === key)?.[1] ?? null;
  }

  /** Keep it; null: it was handed in, or is as it began. */
  put(key: string, draft: Draft | null): void {
    const others = this.drafts.filter(([other]) => other !== key);
    if (!draft && others.length === this.drafts.length) {
      return;
    }
    this.drafts = this.fitting(draft ? [...others, [key, draft]] : others);
    this.save(this.drafts);
  }

  private fitting(all: Array<[string, Draft]>): Array<[string, Draft]> {
    let room = this.most;
    const fits = all.reverse().filter(one => (room -= JSON.stringify(one).length) >= 0);
    return fits.reverse();
  }
}
