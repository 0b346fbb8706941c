/** Shows a diagnosis that the user can copy: versions, connection, the last failures. It contains no token. */
import { Clipboard } from '@jupyterlab/apputils';

import { choose } from './dialogs';
import { Context } from './ui/context';

const MAX_FAILURES = 20;

/** The failures that were shown, newest last. */
export class Failures {
  private lines: string[] = [];

  add(error: unknown): void {
    const { reason, message } = error as { reason?: string; message?: string };
    this.lines = [...this.lines, `${new Date().toISOString()} ${reason ?? ''} ${message ?? error}`].slice(-MAX_FAILURES);
  }

  get all(): readonly string[] {
    return this.lines;
  }
}

/** Shows the diagnosis, and copies it on request. */
export async function showDiagnostics(context: Context, lab: string, failures: Failures): Promise<void> {
  const { store, feed, translate } = context;
  const text = [
    `JupyterLab ${lab}, panel ${store.build || '?'}, platform ${context.me()?.version ?? '?'} (${context.me()?.cluster ?? '?'})`,
    `platform ${store.link.up ? 'answers' : `does not: ${store.link.reason} ${store.link.message}`}; feed ${feed.state}`,
    `${store.tasks.size} tasks, ${store.nodes.size} nodes, version ${store.version} of store ${store.id}`,
    navigator.userAgent,
    ...(failures.all.length ? ['failures:', ...failures.all] : ['no failures'])
  ].join('\n');
  if (await choose(translate, translate('Diagnostics'), text, { copy: translate('Copy') })) {
    Clipboard.copyToSystem(text);
  }
}
