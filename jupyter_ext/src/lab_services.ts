/** The services of JupyterLab. A service that an installation lacks is null, and the features that need it are absent. */
import { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IEditorServices } from '@jupyterlab/codeeditor';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { IFileBrowserFactory } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator } from '@jupyterlab/translation';

export const PLUGIN = 'hai-jupyter:plugin';

/** In the order in which `labServices` reads them. */
export const requires = [IDocumentManager, IEditorServices];
export const optional = [
  ICommandPalette,
  ILauncher,
  ILayoutRestorer,
  ISettingRegistry,
  IStateDB,
  IStatusBar,
  ITranslator,
  IFileBrowserFactory,
  INotebookTracker,
  IRenderMimeRegistry
];

export interface Lab {
  app: JupyterFrontEnd;
  documents: IDocumentManager;
  editors: IEditorServices;
  palette: ICommandPalette | null;
  launcher: ILauncher | null;
  restorer: ILayoutRestorer | null;
  registry: ISettingRegistry | null;
  state: IStateDB | null;
  statusBar: IStatusBar | null;
  translator: ITranslator | null;
  browsers: IFileBrowserFactory | null;
  notebooks: INotebookTracker | null;
  mimes: IRenderMimeRegistry | null;
}

/** Returns the services that JupyterLab passed to `activate`, by name. */
export function labServices(app: JupyterFrontEnd, services: any[]): Lab {
  const [documents, editors, palette, launcher, restorer, registry, state, statusBar, translator, browsers, notebooks, mimes] = services;
  return { app, documents, editors, palette, launcher, restorer, registry, state, statusBar, translator, browsers, notebooks, mimes };
}
