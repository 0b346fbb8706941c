/** Finds the file or the cells to submit in the current document, and saves documents. */
import { JupyterFrontEnd } from '@jupyterlab/application';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { DocumentWidget } from '@jupyterlab/docregistry';
import { INotebookTracker } from '@jupyterlab/notebook';

import { SubmitTarget } from './ui/submit';

const SUFFIXES = ['.py', '.sh', '.ipynb', '.yml', '.yaml'];

/** Returns true for the path of a file that can be submitted. */
export function isSubmittable(path: string): boolean {
  return SUFFIXES.some(suffix => path.endsWith(suffix));
}

/** Returns true for the path of a notebook. */
export function isNotebook(path: string): boolean {
  return path.endsWith('.ipynb');
}

/** Returns the current document; null if it cannot be submitted. */
export function currentTarget(app: JupyterFrontEnd, documents: IDocumentManager): SubmitTarget | null {
  const widget = app.shell.currentWidget;
  const context = widget ? documents.contextForWidget(widget) : undefined;
  return context && isSubmittable(context.localPath) ? targetOf(documents, context.localPath) : null;
}

/** Returns a file to submit; `save` saves it first if it is open and changed. */
export function targetOf(documents: IDocumentManager, path: string): SubmitTarget {
  const save = async () => {
    const widget = documents.findWidget(path);
    const context = widget && documents.contextForWidget(widget);
    if (context?.model.dirty) {
      await context.save();
    }
  };
  return { path, save };
}

/** Returns the selected code cells of the current notebook; null if there are none. */
export function selectedCells(documents: IDocumentManager, notebooks: INotebookTracker): SubmitTarget | null {
  const panel = notebooks.currentWidget;
  if (!panel) {
    return null;
  }
  const selected = panel.content.widgets.filter(cell => panel.content.isSelectedOrActive(cell));
  const sources = selected.filter(cell => cell.model.type === 'code').map(cell => cell.model.sharedModel.getSource());
  return sources.length ? { ...targetOf(documents, panel.context.localPath), cells: sources } : null;
}

/** Saves every open document that was changed; resolves with their number. */
export async function saveAll(app: JupyterFrontEnd, documents: IDocumentManager): Promise<number> {
  const changed = [...app.shell.widgets('main')].filter(
    widget => widget instanceof DocumentWidget && documents.contextForWidget(widget)?.model.dirty
  );
  const saves = changed.map(widget => documents.contextForWidget(widget)!.save());
  const done = await Promise.allSettled(saves);
  return done.filter(result => result.status === 'fulfilled').length;
}
