/** Commands of the extension, in the palette, the launcher, menus and key bindings. */
import { currentTarget, isNotebook, isSubmittable, selectedCells, targetOf } from './active_document';
import { showDiagnostics, Failures } from './diagnostics';
import { haiIcon } from './icons';
import { Lab } from './lab_services';
import { clearOutputs, convertToScript, warnOfLargeNotebooks } from './notebooks';
import { Context } from './ui/context';
import { SubmitTarget } from './ui/submit';

const CATEGORY = 'HAI';

export interface Actions {
  context: Context;
  failures: Failures;
  /** Shows a tab of the panel. */
  open: (tab: string) => void;
  submit: (target: SubmitTarget | null) => void;
  help: () => void;
}

/** Registers all commands. */
export function addCommands(lab: Lab, actions: Actions): void {
  const { context, open } = actions;
  const { app, documents, notebooks } = lab;
  const add = commandAdder(lab, context);
  add('hai:open-panel', 'HAI: Show Tasks', args => open(String(args.tab ?? 'tasks')));
  add('hai:open-containers', 'HAI: Show Dev Containers', () => open('containers'));
  add('hai:open-cluster', 'HAI: Show Cluster', () => open('cluster'));
  add('hai:open-environments', 'HAI: Show Environments', () => open('environments'));
  add('hai:open-workspaces', 'HAI: Show Workspaces', () => open('workspaces'));
  add('hai:open-messages', 'HAI: Show Messages', () => open('messages'));
  add('hai:submit', 'HAI: Submit the Open File…', () => actions.submit(currentTarget(app, documents)));
  add('hai:submit-cells', 'HAI: Submit Selected Cells…', () => actions.submit(notebooks && selectedCells(documents, notebooks)), {
    isEnabled: () => notebooks?.currentWidget != null
  });
  add('hai:diagnostics', 'HAI: Diagnostics…', () => showDiagnostics(context, app.version, actions.failures));
  add('hai:help', 'HAI: What Is There', () => actions.help());
  addTaskCommands(lab, actions);
  addNotebookCommands(lab, context, add);
  lab.launcher?.add({ command: 'hai:open-panel', category: CATEGORY, rank: 1 });
  lab.launcher?.add({ command: 'hai:submit', category: CATEGORY, rank: 2 });
}

type Add = (id: string, label: string, execute: (args: any) => unknown, extra?: object) => void;

function commandAdder(lab: Lab, context: Context): Add {
  return (id, label, execute, extra = {}) => {
    lab.app.commands.addCommand(id, { label: context.translate(label), icon: haiIcon, execute, ...extra });
    lab.palette?.addItem({ command: id, category: CATEGORY });
  };
}

/** Registers commands that need an argument; they are not in the palette. */
function addTaskCommands(lab: Lab, actions: Actions): void {
  const { translate, shell } = actions.context;
  lab.app.commands.addCommand('hai:open-task', {
    label: translate('HAI: Open Task'),
    execute: args => shell.openTask(Number(args.id), args.tab ? String(args.tab) : undefined)
  });
  lab.app.commands.addCommand('hai:submit-selected', {
    label: translate('Submit as Task…'),
    icon: haiIcon,
    isVisible: () => selectedPath(lab) !== null,
    execute: () => {
      const path = selectedPath(lab);
      actions.submit(path === null ? null : targetOf(lab.documents, path));
    }
  });
}

function addNotebookCommands(lab: Lab, context: Context, add: Add): void {
  const { app, documents, notebooks } = lab;
  const withNotebook = (id: string, label: string, work: typeof convertToScript) => {
    const path = (args: any) => (args.selected ? selectedPath(lab, isNotebook) : notebooks?.currentWidget?.context.localPath ?? null);
    const execute = (args: any) => {
      const selected = path(args); // the selection may have changed since the menu was shown
      return selected === null ? undefined : work(context, documents, selected).catch(context.shell.fail);
    };
    add(id, label, execute, { isEnabled: (args: any) => path(args) !== null });
  };
  withNotebook('hai:notebook-to-script', 'HAI: Notebook to Script…', convertToScript);
  withNotebook('hai:clear-outputs', 'HAI: Clear Outputs, Keep a Copy', clearOutputs);
  if (notebooks) {
    const size = async (path: string) => (await app.serviceManager.contents.get(path, { content: false })).size ?? 0;
    warnOfLargeNotebooks(context, notebooks, size, path => void clearOutputs(context, documents, path).catch(context.shell.fail));
  }
}

/** Returns the first selected file of the file browser that fits. */
function selectedPath(lab: Lab, fits: (path: string) => boolean = isSubmittable): string | null {
  const items = [...(lab.browsers?.tracker.currentWidget?.selectedItems() ?? [])];
  return items.find(item => item.type !== 'directory' && fits(item.path))?.path ?? null;
}
