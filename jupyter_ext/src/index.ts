/** The JupyterLab plugin: makes the parts and ties them to Lab. */
import { ILabShell, ILayoutRestorer, JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, Notification, WidgetTracker, showDialog, Dialog } from '@jupyterlab/apputils';
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

import { Api, Me } from './api';
import { Failures, diagnostics } from './diagnostics';
import { cells, current, of, saveAll, submittable } from './documents';
import { haiIcon } from './icons';
import { factory } from './live';
import { Board } from './model/board';
import { Feed } from './model/feed';
import { Say, isChinese, speaker } from './model/language';
import { news } from './model/news';
import { clear, convert, warnOfLarge } from './notebooks';
import { StatusItem } from './status';
import { Context } from './ui/context';
import { TaskPage } from './ui/page';
import { Panel, PanelState } from './ui/panel';
import { Wanted, submitDialog } from './ui/submit';

const PLUGIN = 'hai-jupyter:plugin';
const KEPT = `${PLUGIN}:panel`;
const SEEN = `${PLUGIN}:seen`;
const MESSAGES_SECONDS = 300;

interface Options {
  language: string;
  notifyEnd: boolean;
  saveOnNotice: boolean;
  filter: string;
}

const DEFAULTS: Options = { language: 'auto', notifyEnd: true, saveOnNotice: true, filter: 'user:me' };

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Tasks of the HAI cluster in JupyterLab.',
  autoStart: true,
  requires: [IDocumentManager, IEditorServices],
  optional: [
    ICommandPalette,
    ILauncher,
    ILayoutRestorer,
    ISettingRegistry,
    IStateDB,
    IStatusBar,
    ITranslator,
    IFileBrowserFactory,
    INotebookTracker,
    IRenderMimeRegistry,
    ILabShell
  ],
  activate
};

export default plugin;

async function activate(
  app: JupyterFrontEnd,
  documents: IDocumentManager,
  editors: IEditorServices,
  palette: ICommandPalette | null,
  launcher: ILauncher | null,
  restorer: ILayoutRestorer | null,
  registry: ISettingRegistry | null,
  state: IStateDB | null,
  statusBar: IStatusBar | null,
  translator: ITranslator | null,
  browsers: IFileBrowserFactory | null,
  notebooks: INotebookTracker | null,
  mimes: IRenderMimeRegistry | null,
  lab: ILabShell | null
): Promise<void> {
  const api = new Api(app.serviceManager.serverSettings);
  const board = new Board();
  const feed = new Feed(board, api.surroundings());
  feed.start(); // first of all: its answer comes while Lab is still loading
  const options = await readOptions(registry);
  const say = await language(options, translator);
  let me: Me | null = null;
  let unread = 0;

  const submit = async (wanted: Wanted | null) => {
    if (!wanted) {
      Notification.info(say('Open a .py, .sh, .ipynb or .yml file to submit it.'), { autoClose: 5000 });
      return;
    }
    const task = await submitDialog(context, editors, wanted);
    if (task) {
      board.put(task);
      board.changed();
      Notification.success(say('Task {id} {name} was submitted', { id: task.id, name: task.name }), {
        autoClose: 4000,
        actions: [{ label: say('Open'), callback: () => openTask(task.id) }]
      });
    }
  };

  const tracker = new WidgetTracker<MainAreaWidget<TaskPage>>({ namespace: 'hai-task' });
  const openTask = (id: number, tab = 'overview') => {
    let widget = tracker.find(one => one.content.task === id);
    if (!widget) {
      widget = new MainAreaWidget({ content: new TaskPage(context, id, tab) });
      widget.id = `hai-task-${id}`;
      widget.title.label = board.tasks.get(id)?.name ?? `#${id}`;
      widget.title.icon = haiIcon;
      widget.title.closable = true;
      void tracker.add(widget);
    }
    if (!widget.isAttached) {
      app.shell.add(widget, 'main');
    }
    widget.content.open(tab);
    app.shell.activateById(widget.id);
  };

  const failures = new Failures();
  const context: Context = {
    api,
    board,
    feed,
    say,
    me: () => me,
    unread: {
      count: () => unread,
      seen: () => {
        unread = 0;
        void state?.save(SEEN, Date.now());
        board.changed();
      }
    },
    shell: {
      openTask,
      submit: () => void submit(current(app, documents)),
      folder: () => app.serviceManager.contents.localPath(browsers?.tracker.currentWidget?.model.path ?? ''),
      openLink: link => void window.open(link, '_blank', 'noopener,noreferrer'),
      openFile: path => void documents.openOrReveal(path),
      fail: error => {
        failures.add(error);
        Notification.error((error as Error).message, { autoClose: 8000 });
      },
      confirm: async (title, body, verb) => {
        const answer = await showDialog({
          title,
          body,
          buttons: [Dialog.cancelButton({ label: say('Cancel') }), Dialog.warnButton({ label: verb })]
        });
        return answer.button.accept;
      }
    }
  };

  const first = { tab: 'tasks', filter: options.filter };
  const panel = new Panel(context, first, next => void state?.save(KEPT, { ...next }));
  // Not awaited: the state database opens only after all plugins have been activated.
  void state?.fetch(KEPT).then(kept => kept && panel.bring(kept as unknown as PanelState));
  panel.id = 'hai-panel';
  panel.title.icon = haiIcon;
  panel.title.caption = say('HAI: tasks of the cluster');
  app.shell.add(panel, 'left', { rank: 350 });
  restorer?.add(panel, 'hai-panel');

  const commands = app.commands;
  const open = (tab: string) => {
    panel.showTab(tab);
    app.shell.activateById(panel.id);
  };
  const category = 'HAI';
  const add = (id: string, label: string, execute: (args: any) => unknown, extra: object = {}) => {
    commands.addCommand(id, { label: say(label), icon: haiIcon, execute, ...extra });
    palette?.addItem({ command: id, category });
  };
  add('hai:open-panel', 'HAI: Show Tasks', args => open(String(args.tab ?? 'tasks')));
  add('hai:open-containers', 'HAI: Show Dev Containers', () => open('containers'));
  add('hai:open-cluster', 'HAI: Show Cluster', () => open('cluster'));
  add('hai:open-messages', 'HAI: Show Messages', () => open('messages'));
  add('hai:submit', 'HAI: Submit the Open File…', () => submit(current(app, documents)));
  add('hai:submit-cells', 'HAI: Submit Selected Cells…', () => submit(notebooks && cells(documents, notebooks)), {
    isEnabled: () => notebooks?.currentWidget != null
  });
  commands.addCommand('hai:open-task', {
    label: say('HAI: Open Task'),
    execute: args => openTask(Number(args.id), args.tab ? String(args.tab) : undefined)
  });
  commands.addCommand('hai:submit-selected', {
    label: say('Submit as Task…'),
    icon: haiIcon,
    isVisible: () => selected(browsers) !== null,
    execute: () => {
      const path = selected(browsers);
      return submit(path === null ? null : of(documents, path));
    }
  });
  add('hai:diagnostics', 'HAI: Diagnostics…', () => diagnostics(context, app.version, failures));
  const withNotebook = (id: string, label: string, work: typeof convert) => {
    const path = (args: any) => (args.selected ? selected(browsers) : notebooks?.currentWidget?.context.localPath ?? null);
    const execute = (args: any) => work(context, documents, path(args)!).catch(context.shell.fail);
    add(id, label, execute, { isEnabled: (args: any) => path(args) !== null });
  };
  withNotebook('hai:notebook-to-script', 'HAI: Notebook to Script…', convert);
  withNotebook('hai:clear-outputs', 'HAI: Clear Outputs, Keep a Copy', clear);
  if (notebooks) {
    const size = async (path: string) => (await app.serviceManager.contents.get(path, { content: false })).size ?? 0;
    warnOfLarge(context, notebooks, size, path => void clear(context, documents, path).catch(context.shell.fail));
  }
  launcher?.add({ command: 'hai:open-panel', category, rank: 1 });
  launcher?.add({ command: 'hai:submit', category, rank: 2 });
  if (restorer) {
    void restorer.restore(tracker, {
      command: 'hai:open-task',
      args: widget => ({ id: widget.content.task }),
      name: widget => String(widget.content.task)
    });
  }
  statusBar?.registerStatusItem(`${PLUGIN}:status`, {
    item: new StatusItem(context, open),
    align: 'right',
    rank: 900
  });
  mimes?.addFactory(factory(context));
  void lab;

  const tell = (before: any, after: any) => {
    const found = options.notifyEnd ? news(before, after, me?.user ?? '') : null;
    if (found) {
      const text = say(found.text, { id: after.id, name: after.name, why: after.why ?? '' });
      Notification.emit(text, found.kind, {
        autoClose: found.kind === 'error' ? false : 8000,
        actions: [{ label: say('Open'), callback: () => openTask(after.id) }]
      });
    }
  };
  board.watch(tell);
  let noticed = '';
  let build = '';
  let asked = false;
  const look = () => {
    const notice = board.notice ? JSON.stringify(board.notice) : '';
    const ahead = (board.notice?.ends_at ?? 0) * 1000 > Date.now();
    if (notice && notice !== noticed && ahead && options.saveOnNotice) {
      void reclaim(board.notice!.reason);
    }
    noticed = notice;
    if (build && board.build !== build) {
      const actions = [{ label: say('Reload'), callback: () => window.location.reload() }];
      Notification.warning(say('The panel of HAI was renewed on the server; this page has the old one.'), { autoClose: false, actions });
    }
    build = board.build;
    if (board.link.up && !asked) {
      asked = true;
      void whoAmI();
      void lookForMessages();
    }
    asked = asked && board.link.up;
  };

  const reclaim = async (reason: string) => {
    const saved = await saveAll(app, documents);
    await api.saved().catch(error => context.shell.fail(error));
    Notification.warning(
      say('This container will be taken back: {reason}. {n} documents were saved.', { reason, n: saved }),
      { autoClose: false }
    );
  };
  const whoAmI = async () => {
    me = await api.me().catch(() => me);
    board.changed();
  };
  const lookForMessages = async () => {
    const seen = Number((await state?.fetch(SEEN)) ?? 0);
    const found = await api.messages().catch(() => []);
    unread = found.filter(message => Date.parse(message.create_time) > seen).length;
    board.changed();
  };
  window.setInterval(() => board.link.up && !document.hidden && void lookForMessages(), MESSAGES_SECONDS * 1000);
  board.listen(look);
  look();
}

function selected(browsers: IFileBrowserFactory | null): string | null {
  const item = browsers?.tracker.currentWidget?.selectedItems().next().value;
  return item && item.type !== 'directory' && submittable(item.path) ? item.path : null;
}

async function readOptions(registry: ISettingRegistry | null): Promise<Options> {
  try {
    const settings = await registry?.load(PLUGIN);
    const options = { ...DEFAULTS, ...(settings?.composite as Partial<Options> | undefined) };
    settings?.changed.connect(() => Object.assign(options, settings.composite));
    return options;
  } catch (error) {
    console.warn('hai-jupyter: no settings', error);
    return DEFAULTS;
  }
}

async function language(options: Options, translator: ITranslator | null): Promise<Say> {
  const labs = translator?.languageCode ?? 'en';
  const auto = labs.startsWith('en') ? document.documentElement.lang || labs : labs;
  const chosen = options.language === 'auto' ? auto : options.language;
  if (!isChinese(chosen)) {
    return speaker({});
  }
  return speaker((await import(/* webpackChunkName: "zh" */ './model/zh')).default);
}
