/** The context of every component: the store, the server, the language, and the actions of Lab. */
import * as React from 'react';

import { Api } from '../api';
import { Me } from '../model/api_types';
import { StateStore } from '../model/state_store';
import { Drafts } from '../model/drafts';
import { Feed } from '../model/feed';
import { Translate } from '../model/language';

export interface Shell {
  /** Opens the page of a task, on one of its tabs; `rank` selects the log of one rank. */
  openTask(id: number, tab?: string, rank?: string): void;
  /** The user has selected a task in the list; a setting says whether its log is shown. */
  onSelect(id: number): void;
  /** Opens the submit dialog for the current document. */
  submit(): void;
  /** Runs a command of the extension. */
  run(command: string): void;
  /** Returns the keys of a command; empty if there are none. */
  keys(command: string): string;
  /** Runs a command line in a new terminal. */
  runInTerminal(command: string): void;
  /** Asks before an action that cannot be undone. */
  confirm(title: string, text: string, verb: string): Promise<boolean>;
  /** Shows a failure. */
  fail(error: unknown): void;
  /** Returns the folder that the file browser shows. */
  currentFolder(): string;
  /** Opens a link in another tab, which cannot reach this page. */
  openLink(link: string): void;
  /** Opens a file by its contents path. */
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
  /** Forms that are not submitted yet. */
  drafts: Drafts;
}

/** Draws the component again when the store has changed, at most once per frame. */
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

/** Returns the time in seconds, updated once a second. */
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

/** Loads once, and again on `reload` or when a dependency changes. The old value stays until the new one arrives. */
export function useLoaded<T>(load: () => Promise<T>, dependencies: readonly unknown[]): Loaded<T> {
  const [value, setValue] = React.useState<T | null>(null);
  const [error, setError] = React.useState<Error | null>(null);
  const [turn, setTurn] = React.useState(0);
  React.useEffect(() => {
    let current = true;
    load().then(
      loaded => current && (setValue(loaded), setError(null)),
      failure => current && setError(failure)
    );
    return () => {
      current = false;
    };
  }, [...dependencies, turn]);
  return { value, error, reload: () => setTurn(n => n + 1) };
}
