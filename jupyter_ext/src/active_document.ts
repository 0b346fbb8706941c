/** Finds the file or cells to submit from the current document, and saves documents. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { DocumentWidget } from '@jupyterlab/docregistry';
import { INotebookTracker } from '@jupyterlab/notebook';

import { SubmitTarget } from './ui/submit';

const ENDINGS = ['.py', '.sh', '.ipynb', '.yml', '.yaml'];

/** True for files that can be tasks by their name. */
export function submittable(path: string): boolean {
  return ENDINGS.some(ending => path.endsWith(ending));
}

/** True for notebooks, by their name. */
export function isNotebook(path: string): boolean {
  return path.endsWith('.ipynb');
}

/** The document in front; null when it is none that can be submitted. */
export function current(app: JupyterFrontEnd, documents: IDocumentManager): SubmitTarget | null {
  const widget = app.shell.currentWidget;
  const context = widget ? documents.contextForWidget(widget) : undefined;
  return context && submittable(context.localPath) ? of(documents, context.localPath) : null;
}

/** A file by its path; saved first when it is open and changed. */
export function of(documents: IDocumentManager, path: string): SubmitTarget {
  const save = async () => {
    const widget = documents.findWidget(path);
    const context = widget && documents.contextForWidget(widget);
    if (context?.model.dirty) {
      await context.save();
    }
  };
  return { path, save };
}

/** The chosen code cells of the notebook in front. */
export function cells(documents: IDocumentManager, notebooks: INotebookTracker): SubmitTarget | null {
  const panel = notebooks.currentWidget;
  if (!panel) {
    return null;
  }
  const chosen = panel.content.widgets.filter(cell => panel.content.isSelectedOrActive(cell));
  const sources = chosen.filter(cell => cell.model.type === 'code').map(cell => cell.model.sharedModel.getSource());
  return sources.length ? { ...of(documents, panel.context.localPath), cells: sources } : null;
}

/** Save every open document that was changed; resolves with how many. */
export async function saveAll(app: JupyterFrontEnd, documents: IDocumentManager): Promise<number> {
  const changed = [...app.shell.widgets('main')].filter(
    widget => widget instanceof DocumentWidget && documents.contextForWidget(widget)?.model.dirty
  );
  const saves = changed.map(widget => documents.contextForWidget(widget)!.save());
  const done = await Promise.allSettled(saves);
  return done.filter(result => result.status === 'fulfilled').length;
}
