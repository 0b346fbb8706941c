/** The JupyterLab plugin: creates the parts and connects them to Lab. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';

import { Api } from './api';
import { addCommands } from './commands';
import { Failures } from './diagnostics';
import { haiIcon } from './icons';
import { Lab, PLUGIN, labServices, optional, requires } from './lab_services';
import { rendererFactory } from './notebook_task_view';
import { StateStore } from './model/state_store';
import { Drafts } from './model/drafts';
import { Feed } from './model/feed';
import { CHECK_SECONDS } from './model/heartbeat';
import { loadTranslator, readOptions } from './options';
import { TaskPages } from './task_pages';
import { createShell } from './shell';
import { StatusItem } from './status';
import { submitFile } from './submit_file';
import { Notifications } from './notifications';
import { Context } from './ui/context';
import { Help } from './ui/help';
import { Panel, PanelState } from './ui/panel';
import { SubmitTarget } from './ui/submit';

const PANEL_STATE = `${PLUGIN}:panel`;
const DRAFTS = `${PLUGIN}:drafts`;

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Tasks of the HAI cluster in JupyterLab.',
  autoStart: true,
  requires,
  optional,
  activate: (app: JupyterFrontEnd, ...services: any[]) => activate(labServices(app, services))
};

export default plugin;

async function activate(lab: Lab): Promise<void> {
  const { app, state } = lab;
  const api = new Api(app.serviceManager.serverSettings);
  const store = new StateStore();
  const feed = new Feed(store, api.streamEnvironment());
  feed.start(); // first, so that the answer comes while Lab is loading
  window.setInterval(() => feed.check(), CHECK_SECONDS * 1000);
  const options = await readOptions(lab.registry);
  const translate = await loadTranslator(options, lab.translator);
  const failures = new Failures();
  const pages = new TaskPages(lab, () => context);
  const notifications = new Notifications(lab, options, () => context);
  const submitTarget = (target: SubmitTarget | null) => void submitFile(lab, context, target);
  const context: Context = {
    api,
    store,
    feed,
    translate,
    me: () => notifications.me,
    unread: { count: () => notifications.unread, markRead: () => notifications.markMessagesRead() },
    drafts: new Drafts(saved => void state?.save(DRAFTS, saved as any)),
    shell: createShell(lab, translate, options, pages, failures, submitTarget)
  };
  const open = addPanel(lab, context, options.filter);
  addCommands(lab, { context, failures, open, submit: submitTarget, help: () => showHelp(lab, context) });
  pages.restore();
  lab.statusBar?.registerStatusItem(`${PLUGIN}:status`, { item: new StatusItem(context, open), align: 'right', rank: 900 });
  lab.mimes?.addFactory(rendererFactory(context));
  // Not awaited here: the state database opens only after all plugins have been activated.
  context.drafts.ready = state ? state.fetch(DRAFTS).then(saved => context.drafts.addSaved(saved)) : context.drafts.ready;
  notifications.start();
  openFromUrl(lab, context);
}

/** Adds the panel at the left; returns a function that shows one of its tabs. */
function addPanel(lab: Lab, context: Context, filter: string): (tab: string) => void {
  const { app, state } = lab;
  const panel = new Panel(context, { tab: 'tasks', filter, columns: [] }, next => void state?.save(PANEL_STATE, { ...next }));
  void state?.fetch(PANEL_STATE).then(saved => saved && panel.restore(saved as unknown as PanelState));
  panel.id = 'hai-panel';
  panel.title.icon = haiIcon;
  panel.title.caption = context.translate('HAI: tasks of the cluster');
  app.shell.add(panel, 'left', { rank: 350 });
  lab.restorer?.add(panel, 'hai-panel');
  return tab => {
    panel.showTab(tab);
    app.shell.activateById(panel.id);
  };
}

/** Opens the task that a link names (`lab?hai-task=12`). Lab itself opens files (`lab/tree/PATH`). */
function openFromUrl(lab: Lab, context: Context): void {
  const target = Number(new URLSearchParams(window.location.search).get('hai-task'));
  if (Number.isInteger(target) && target > 0) {
    void lab.app.restored.then(() => context.shell.openTask(target));
  }
}

function showHelp(lab: Lab, context: Context): void {
  const widget = new MainAreaWidget({ content: new Help(context) });
  widget.title.label = context.translate('What is there');
  widget.title.icon = haiIcon;
  widget.title.closable = true;
  lab.app.shell.add(widget, 'main');
}
