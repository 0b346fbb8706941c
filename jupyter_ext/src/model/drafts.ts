/** Saves forms that are not submitted yet, so that they survive a reload or another browser. */
import { Form } from './form';

export interface Draft {
  form: Form;
  /** The task file if the user edited it last; else null. */
  text: string | null;
}

const MAX_CHARS = 64 * 1024;

/** Keeps the newest drafts, as many as fit. `save` is called with all of them after each change. */
export class Drafts {
  /** Resolves once saved drafts are loaded. */
  ready: Promise<void> = Promise.resolve();
  private drafts: Array<[string, Draft]> = [];

  constructor(
    private save: (drafts: Array<[string, Draft]>) => void,
    private maxChars = MAX_CHARS
  ) {}

  /** Adds saved drafts; invalid entries are skipped. */
  addSaved(drafts: unknown): void {
    const valid = Array.isArray(drafts) ? drafts.filter(each => typeof each?.[0] === 'string' && typeof each[1]?.form === 'object') : [];
    this.drafts = valid.filter(([key]) => !this.get(key)).concat(this.drafts);
  }

  /** Returns the draft of a file. */
  get(key: string): Draft | null {
    return this.drafts.find(([other]) => other === key)?.[1] ?? null;
  }

  /** Stores a draft; null removes it after the submission or a reset. */
  put(key: string, draft: Draft | null): void {
    const others = this.drafts.filter(([other]) => other !== key);
    if (!draft && others.length === this.drafts.length) {
      return;
    }
    this.drafts = this.newestThatFit(draft ? [...others, [key, draft]] : others);
    this.save(this.drafts);
  }

  private newestThatFit(all: Array<[string, Draft]>): Array<[string, Draft]> {
    let charsLeft = this.maxChars;
    const fits = all.reverse().filter(each => (charsLeft -= JSON.stringify(each).length) >= 0);
    return fits.reverse();
  }
}
