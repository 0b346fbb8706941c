/** What every component is given: the board, the way to the server, the language, and what Lab can do for it. */
import * as React from 'react';

import { Api } from '../api';
import { Me } from '../model/api_types';
import { StateStore } from '../model/state_store';
import { Drafts } from '../model/drafts';
import { Feed } from '../model/feed';
import { Translate } from '../model/language';

export interface Shell {
  /** Open the page of a task, on one of its tabs; of the log only this rank. */
  openTask(id: number, tab?: string, rank?: string): void;
  /** A task was chosen in the list; whether its log is shown is a setting. */
  chose(id: number): void;
  /** Open the submit dialog for what is on the screen. */
  submit(): void;
  /** Run one of our commands. */
  run(command: string): void;
  /** The keys of a command; empty: none. */
  keys(command: string): string;
  /** Type a command line into a new terminal. */
  type(command: string): void;
  /** Ask before something that cannot be undone. */
  confirm(title: string, text: string, verb: string): Promise<boolean>;
  /** Tell of a failure. */
  fail(error: unknown): void;
  /** The folder that the file browser shows. */
  folder(): string;
  /** Show a link in a tab of its own, which cannot reach this page. */
  openLink(link: string): void;
  /** Open a file of the contents root. */
  openFile(path: string): void;
}

export interface Context {
  api: Api;
  store: StateStore;
  feed: Feed;
  translate: Translate;
  shell: Shell;
  /** The user; null until the server has responded. */
  me: () => Me | null;
  /** The number of unread messages, and a function that marks them as read. */
  unread: { count: () => number; markRead: () => void };
  /** Submissions that were begun. */
  drafts: Drafts;
}

/** Draw again when the board has changed, at most once a frame. */
export function useStore(context: Context): number {
  const [count, setCount] = React.useState(0);
  React.useEffect(() => {
    let planned = 0;
    const stop = context.store.listen(() => {
      planned ||= requestAnimationFrame(() => {
        planned = 0;
        setCount(n => n + 1);
      });
    });
    return () => {
      stop();
      cancelAnimationFrame(planned);
    };
  }, [context]);
  return count;
}

/** The time in seconds, once a second. */
export function useNow(): number {
  const [now, setNow] = React.useState(() => Date.now() / 1000);
  React.useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => window.clearInterval(timer);
  }, []);
  return now;
}

export interface Loaded<T> {
  value: T | null;
  error: Error | null;
  reload: () => void;
}

/** Ask once, and again on `reload` or when one of `when` has changed. What was there stays while asking. */
export function useLoaded<T>(load: () => Promise<T>, dependencies: readonly unknown[]): Loaded<T> {
  const [value, setValue] = React.useState<T | null>(null);
  const [error, setError] = React.useState<Error | null>(null);
  const [turn, setTurn] = React.useState(0);
  React.useEffect(() => {
    let current = true;
    load().then(
      found => current && (setValue(found), setError(null)),
      failure => current && setError(failure)
    );
    return () => {
      current = false;
    };
  }, [...dependencies, turn]);
  return { value, error, reload: () => setTurn(n => n + 1) };
}
