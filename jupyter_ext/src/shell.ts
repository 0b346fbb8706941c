/** The actions of JupyterLab that widgets may use. */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';

import { Failures } from './diagnostics';
import { currentTarget } from './active_document';
import { Lab } from './lab_services';
import { Translate } from './model/language';
import { Options } from './options';
import { TaskPages } from './task_pages';
import { runInTerminal } from './terminals';
import { Shell } from './ui/context';
import { SubmitTarget } from './ui/submit';

/** Creates the actions; `submit` opens the dialog for a file. */
export function createShell(lab: Lab, translate: Translate, options: Options, pages: TaskPages, failures: Failures, submit: (target: SubmitTarget | null) => void): Shell {
  const fail = (error: unknown) => {
    failures.add(error);
    Notification.error((error as Error).message, { autoClose: 8000 });
  };
  return {
    fail,
    openTask: (id, tab, rank) => pages.open(id, tab, rank),
    onSelect: id => options.followSelection && pages.follow(id),
    submit: () => submit(currentTarget(lab.app, lab.documents)),
    run: id => void lab.app.commands.execute(id),
    keys: id => keysOf(lab, id),
    runInTerminal: command => runInTerminal(lab, translate, command).catch(fail),
    currentFolder: () => lab.app.serviceManager.contents.localPath(lab.browsers?.tracker.currentWidget?.model.path ?? ''),
    openLink: link => void window.open(link, '_blank', 'noopener,noreferrer'),
    openFile: path => void lab.documents.openOrReveal(path),
    confirm: async (title, body, verb) => {
      const buttons = [Dialog.cancelButton({ label: translate('Cancel') }), Dialog.warnButton({ label: verb })];
      return (await showDialog({ title, body, buttons })).button.accept;
    }
  };
}

function keysOf(lab: Lab, id: string): string {
  const binding = lab.app.commands.keyBindings.find(binding => binding.command === id);
  return binding ? binding.keys.join(' ').replace(/\bAccel\b/, 'Ctrl') : '';
}
