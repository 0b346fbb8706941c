/** The JupyterLab plugin: makes the parts and ties them to Lab. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { MainAreaWidget } from '@jupyterlab/apputils';

import { Api } from './api';
import { addCommands } from './commands';
import { Failures } from './diagnostics';
import { haiIcon } from './icons';
import { Lab, PLUGIN, lab, optional, requires } from './lab';
import { factory } from './live';
import { Board } from './model/board';
import { Drafts } from './model/drafts';
import { Feed } from './model/feed';
import { CHECK_SECONDS } from './model/quiet';
import { language, readOptions } from './options';
import { Pages } from './pages';
import { shellOf } from './shell';
import { StatusItem } from './status';
import { submit } from './submitting';
import { Telling } from './telling';
import { Context } from './ui/context';
import { Help } from './ui/help';
import { Panel, PanelState } from './ui/panel';
import { Wanted } from './ui/submit';

const KEPT = `${PLUGIN}:panel`;
const DRAFTS = `${PLUGIN}:drafts`;

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Tasks of the HAI cluster in JupyterLab.',
  autoStart: true,
  requires,
  optional,
  activate: (app: JupyterFrontEnd, ...found: any[]) => activate(lab(app, found))
};

export default plugin;

async function activate(lab: Lab): Promise<void> {
  const { app, state } = lab;
  const api = new Api(app.serviceManager.serverSettings);
  const board = new Board();
  const feed = new Feed(board, api.surroundings());
  feed.start(); // first of all: its answer comes while Lab is still loading
  window.setInterval(() => feed.check(), CHECK_SECONDS * 1000);
  const options = await readOptions(lab.registry);
  const say = await language(options, lab.translator);
  const failures = new Failures();
  const pages = new Pages(lab, () => context);
  const telling = new Telling(lab, options, () => context);
  const ask = (wanted: Wanted | null) => void submit(lab, context, wanted);
  const context: Context = {
    api,
    board,
    feed,
    say,
    me: () => telling.me,
    unread: { count: () => telling.unread, seen: () => telling.seen() },
    drafts: new Drafts(kept => void state?.save(DRAFTS, kept as any)),
    shell: shellOf(lab, say, options, pages, failures, ask)
  };
  const open = addPanel(lab, context, options.filter);
  addCommands(lab, { context, failures, open, submit: ask, help: () => help(lab, context) });
  pages.restore();
  lab.statusBar?.registerStatusItem(`${PLUGIN}:status`, { item: new StatusItem(context, open), align: 'right', rank: 900 });
  lab.mimes?.addFactory(factory(context));
  // Not awaited here: the state database opens only after all plugins have been activated.
  context.drafts.ready = state ? state.fetch(DRAFTS).then(kept => context.drafts.bring(kept)) : context.drafts.ready;
  telling.start();
  openWanted(lab, context);
}

/** The panel at the left; the answer shows one of its tabs. */
function addPanel(lab: Lab, context: Context, filter: string): (tab: string) => void {
  const { app, state } = lab;
  const panel = new Panel(context, { tab: 'tasks', filter, columns: [] }, next => void state?.save(KEPT, { ...next }));
  void state?.fetch(KEPT).then(kept => kept && panel.bring(kept as unknown as PanelState));
  panel.id = 'hai-panel';
  panel.title.icon = haiIcon;
  panel.title.caption = context.say('HAI: tasks of the cluster');
  app.shell.add(panel, 'left', { rank: 350 });
  lab.restorer?.add(panel, 'hai-panel');
  return tab => {
    panel.showTab(tab);
    app.shell.activateById(panel.id);
  };
}

/** A link may name a task (`lab?hai-task=12`); files are Lab's own matter (`lab/tree/PATH`). */
function openWanted(lab: Lab, context: Context): void {
  const wanted = Number(new URLSearchParams(window.location.search).get('hai-task'));
  if (Number.isInteger(wanted) && wanted > 0) {
    void lab.app.restored.then(() => context.shell.openTask(wanted));
  }
}

function help(lab: Lab, context: Context): void {
  const widget = new MainAreaWidget({ content: new Help(context) });
  widget.title.label = context.say('What is there');
  widget.title.icon = haiIcon;
  widget.title.closable = true;
  lab.app.shell.add(widget, 'main');
}
