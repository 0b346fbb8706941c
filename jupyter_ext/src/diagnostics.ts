/** What somebody who helps wants to know, as text to copy: versions, connection, the last failures. No token is in it. */
import { Clipboard } from '@jupyterlab/apputils';

import { choose } from './dialogs';
import { Context } from './ui/context';

const KEPT = 20;

/** Failures that were shown, newest last. */
export class Failures {
  private lines: string[] = [];

  /** Note one. */
  add(error: unknown): void {
    const { reason, message } = error as { reason?: string; message?: string };
    this.lines = [...this.lines, `${new Date().toISOString()} ${reason ?? ''} ${message ?? error}`].slice(-KEPT);
  }

  get all(): readonly string[] {
    return this.lines;
  }
}

/** Show it, and copy it if wanted. */
export async function diagnostics(context: Context, lab: string, failures: Failures): Promise<void> {
  const { board, feed, say } = context;
  const text = [
    `JupyterLab ${lab}, panel ${board.build || '?'}, platform ${context.me()?.version ?? '?'} (${context.me()?.cluster ?? '?'})`,
    `platform ${board.link.up ? 'answers' : `does not: ${board.link.reason} ${board.link.message}`}; feed ${feed.state}`,
    `${board.tasks.size} tasks, ${board.nodes.size} nodes, version ${board.version} of board ${board.id}`,
    navigator.userAgent,
    ...(failures.all.length ? ['failures:', ...failures.all] : ['no failures'])
  ].join('\n');
  if (await choose(say, say('Diagnostics'), text, { copy: say('Copy') })) {
    Clipboard.copyToSystem(text);
  }
}
