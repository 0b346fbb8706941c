/** Commands for notebooks: as a script, without outputs; and a word about large ones. */
import { Notification } from '@jupyterlab/apputils';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { INotebookTracker } from '@jupyterlab/notebook';

import { choose } from './dialogs';
import { of } from './documents';
import { bytes } from './model/words';
import { Context } from './ui/context';

const LARGE = 5 * 2 ** 20;
const SHOWN = 12;

type Wish = { path: string; specials?: string; clash?: string };

/** Write a script beside the notebook; asks about what is no Python, and before anything is overwritten. */
export async function convert(context: Context, documents: IDocumentManager, path: string): Promise<void> {
  await of(documents, path).save();
  await asked(context, { path });
}

async function asked(context: Context, wish: Wish): Promise<void> {
  const { say } = context;
  const found = await context.api.script(wish);
  if (found.path) {
    return context.shell.openFile(found.path);
  }
  const lines = (found.specials ?? []).map(one => `${one.cell}:${one.line}  ${one.text}`);
  const more = lines.length > SHOWN ? ['…'] : [];
  if (found.exists) {
    const answers = { overwrite: say('Overwrite'), rename: say('Another name') };
    const clash = await choose(say, say('{path} exists', { path: found.exists }), '', answers);
    return clash ? asked(context, { ...wish, clash }) : undefined;
  }
  const body = [say('{n} lines (cell:line):', { n: lines.length }), ...lines.slice(0, SHOWN), ...more].join('\n');
  const answers = { skip: say('As comments'), convert: say('As IPython calls') };
  const specials = await choose(say, say('Not everything in it is Python'), body, answers);
  return specials ? asked(context, { ...wish, specials }) : undefined;
}

/** Remove the outputs of a notebook, with a copy as it was beside it. */
export async function clear(context: Context, documents: IDocumentManager, path: string): Promise<void> {
  await of(documents, path).save();
  const done = await context.api.clear(path);
  const widget = documents.findWidget(path);
  await (widget && documents.contextForWidget(widget))?.revert();
  const told = { path, before: bytes(done.before), after: bytes(done.after), copy: done.copy };
  Notification.success(context.say('{path} had {before} and has {after}; as it was it is {copy}', told), { autoClose: 8000 });
}

/** Say so when a notebook is opened that is slow to save and to load. */
export function warnOfLarge(context: Context, notebooks: INotebookTracker, size: (path: string) => Promise<number>, clears: (path: string) => void): void {
  notebooks.widgetAdded.connect(async (_, panel) => {
    await panel.context.ready;
    const path = panel.context.localPath;
    const now = await size(panel.context.path).catch(() => 0);
    if (now > LARGE) {
      const actions = [{ label: context.say('Clear outputs'), callback: () => clears(path) }];
      Notification.warning(context.say('{path} has {size}: slow to save and to load', { path, size: bytes(now) }), { autoClose: false, actions });
    }
  });
}
