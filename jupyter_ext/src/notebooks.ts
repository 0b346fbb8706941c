/** Commands for notebooks: convert to a script, clear outputs; and a warning about large notebooks. */
import { Notification } from '@jupyterlab/apputils';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { INotebookTracker } from '@jupyterlab/notebook';

import { choose } from './dialogs';
import { targetOf } from './active_document';
import { bytes } from './model/format';
import { Context } from './ui/context';

const LARGE_BYTES = 5 * 2 ** 20;
const MAX_LINES = 12;

type ScriptOptions = { path: string; specials?: string; clash?: string };

/** Writes a script beside the notebook; asks about lines that are not Python, and before it overwrites a file. */
export async function convertToScript(context: Context, documents: IDocumentManager, path: string): Promise<void> {
  await targetOf(documents, path).save();
  await writeScript(context, { path });
}

async function writeScript(context: Context, options: ScriptOptions): Promise<void> {
  const { translate } = context;
  const answer = await context.api.script(options);
  if (answer.path) {
    return context.shell.openFile(answer.path);
  }
  const lines = (answer.specials ?? []).map(special => `${special.cell}:${special.line}  ${special.text}`);
  const more = lines.length > MAX_LINES ? ['…'] : [];
  if (answer.exists) {
    const answers = { overwrite: translate('Overwrite'), rename: translate('Another name') };
    const clash = await choose(translate, translate('{path} exists', { path: answer.exists }), '', answers);
    return clash ? writeScript(context, { ...options, clash }) : undefined;
  }
  const body = [translate('{n} lines (cell:line):', { n: lines.length }), ...lines.slice(0, MAX_LINES), ...more].join('\n');
  const answers = { skip: translate('As comments'), convert: translate('As IPython calls') };
  const specials = await choose(translate, translate('Not everything in it is Python'), body, answers);
  return specials ? writeScript(context, { ...options, specials }) : undefined;
}

/** Removes the outputs of a notebook; a copy with the outputs is saved beside it. */
export async function clearOutputs(context: Context, documents: IDocumentManager, path: string): Promise<void> {
  await targetOf(documents, path).save();
  const result = await context.api.clear(path);
  const widget = documents.findWidget(path);
  await (widget && documents.contextForWidget(widget))?.revert();
  const values = { path, before: bytes(result.before), after: bytes(result.after), copy: result.copy };
  Notification.success(context.translate('{path} had {before} and has {after}; as it was it is {copy}', values), { autoClose: 8000 });
}

/** Warns when the user opens a notebook that is slow to save and to load. */
export function warnOfLargeNotebooks(context: Context, notebooks: INotebookTracker, size: (path: string) => Promise<number>, clear: (path: string) => void): void {
  notebooks.widgetAdded.connect(async (_, panel) => {
    await panel.context.ready;
    const path = panel.context.localPath;
    const now = await size(panel.context.path).catch(() => 0);
    if (now > LARGE_BYTES) {
      const actions = [{ label: context.translate('Clear outputs'), callback: () => clear(path) }];
      Notification.warning(context.translate('{path} has {size}: slow to save and to load', { path, size: bytes(now) }), { autoClose: false, actions });
    }
  });
}
