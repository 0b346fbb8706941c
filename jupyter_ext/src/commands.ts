/** Commands of the extension, in the palette, the launcher, menus and key bindings. */
import { cells, current, isNotebook, of, submittable } from './active_document';
import { diagnostics, Failures } from './diagnostics';
import { haiIcon } from './icons';
import { Lab } from './lab_services';
import { clear, convert, warnOfLarge } from './notebooks';
import { Context } from './ui/context';
import { SubmitTarget } from './ui/submit';

const CATEGORY = 'HAI';

export interface Doing {
  context: Context;
  failures: Failures;
  /** Show a tab of the panel. */
  open: (tab: string) => void;
  submit: (wanted: SubmitTarget | null) => void;
  help: () => void;
}

/** Add them all. */
export function addCommands(lab: Lab, doing: Doing): void {
  const { context, open } = doing;
  const { app, documents, notebooks } = lab;
  const add = adder(lab, context);
  add('hai:open-panel', 'HAI: Show Tasks', args => open(String(args.tab ?? 'tasks')));
  add('hai:open-containers', 'HAI: Show Dev Containers', () => open('containers'));
  add('hai:open-cluster', 'HAI: Show Cluster', () => open('cluster'));
  add('hai:open-environments', 'HAI: Show Environments', () => open('environments'));
  add('hai:open-workspaces', 'HAI: Show Workspaces', () => open('workspaces'));
  add('hai:open-messages', 'HAI: Show Messages', () => open('messages'));
  add('hai:submit', 'HAI: Submit the Open File…', () => doing.submit(current(app, documents)));
  add('hai:submit-cells', 'HAI: Submit Selected Cells…', () => doing.submit(notebooks && cells(documents, notebooks)), {
    isEnabled: () => notebooks?.currentWidget != null
  });
  add('hai:diagnostics', 'HAI: Diagnostics…', () => diagnostics(context, app.version, doing.failures));
  add('hai:help', 'HAI: What Is There', () => doing.help());
  ofTasks(lab, doing);
  ofNotebooks(lab, context, add);
  lab.launcher?.add({ command: 'hai:open-panel', category: CATEGORY, rank: 1 });
  lab.launcher?.add({ command: 'hai:submit', category: CATEGORY, rank: 2 });
}

type Add = (id: string, label: string, execute: (args: any) => unknown, extra?: object) => void;

function adder(lab: Lab, context: Context): Add {
  return (id, label, execute, extra = {}) => {
    lab.app.commands.addCommand(id, { label: context.translate(label), icon: haiIcon, execute, ...extra });
    lab.palette?.addItem({ command: id, category: CATEGORY });
  };
}

/** Not in the palette: they need an argument. */
function ofTasks(lab: Lab, doing: Doing): void {
  const { translate, shell } = doing.context;
  lab.app.commands.addCommand('hai:open-task', {
    label: translate('HAI: Open Task'),
    execute: args => shell.openTask(Number(args.id), args.tab ? String(args.tab) : undefined)
  });
  lab.app.commands.addCommand('hai:submit-selected', {
    label: translate('Submit as Task…'),
    icon: haiIcon,
    isVisible: () => selected(lab) !== null,
    execute: () => {
      const path = selected(lab);
      doing.submit(path === null ? null : of(lab.documents, path));
    }
  });
}

function ofNotebooks(lab: Lab, context: Context, add: Add): void {
  const { app, documents, notebooks } = lab;
  const withNotebook = (id: string, label: string, work: typeof convert) => {
    const path = (args: any) => (args.selected ? selected(lab, isNotebook) : notebooks?.currentWidget?.context.localPath ?? null);
    const execute = (args: any) => {
      const chosen = path(args); // since the menu was shown another file may have been chosen
      return chosen === null ? undefined : work(context, documents, chosen).catch(context.shell.fail);
    };
    add(id, label, execute, { isEnabled: (args: any) => path(args) !== null });
  };
  withNotebook('hai:notebook-to-script', 'HAI: Notebook to Script…', convert);
  withNotebook('hai:clear-outputs', 'HAI: Clear Outputs, Keep a Copy', clear);
  if (notebooks) {
    const size = async (path: string) => (await app.serviceManager.contents.get(path, { content: false })).size ?? 0;
    warnOfLarge(context, notebooks, size, path => void clear(context, documents, path).catch(context.shell.fail));
  }
}

/** The first file that is chosen in the file browser and fits. */
function selected(lab: Lab, fits: (path: string) => boolean = submittable): string | null {
  const items = [...(lab.browsers?.tracker.currentWidget?.selectedItems() ?? [])];
  return items.find(item => item.type !== 'directory' && fits(item.path))?.path ?? null;
}
