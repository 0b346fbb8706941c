/** What widgets may ask of Lab. */
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';

import { Failures } from './diagnostics';
import { current } from './documents';
import { Lab } from './lab';
import { Say } from './model/language';
import { Options } from './options';
import { Pages } from './pages';
import { typed } from './terminals';
import { Shell } from './ui/context';
import { Wanted } from './ui/submit';

/** `submit` opens the dialog for a file. */
export function shellOf(lab: Lab, say: Say, options: Options, pages: Pages, failures: Failures, submit: (wanted: Wanted | null) => void): Shell {
  const fail = (error: unknown) => {
    failures.add(error);
    Notification.error((error as Error).message, { autoClose: 8000 });
  };
  return {
    fail,
    openTask: (id, tab, rank) => pages.open(id, tab, rank),
    chose: id => options.followSelection && pages.follow(id),
    submit: () => submit(current(lab.app, lab.documents)),
    run: id => void lab.app.commands.execute(id),
    keys: id => keysOf(lab, id),
    type: command => typed(lab, say, command).catch(fail),
    folder: () => lab.app.serviceManager.contents.localPath(lab.browsers?.tracker.currentWidget?.model.path ?? ''),
    openLink: link => void window.open(link, '_blank', 'noopener,noreferrer'),
    openFile: path => void lab.documents.openOrReveal(path),
    confirm: async (title, body, verb) => {
      const buttons = [Dialog.cancelButton({ label: say('Cancel') }), Dialog.warnButton({ label: verb })];
      return (await showDialog({ title, body, buttons })).button.accept;
    }
  };
}

function keysOf(lab: Lab, id: string): string {
  const bound = lab.app.commands.keyBindings.find(one => one.command === id);
  return bound ? bound.keys.join(' ').replace(/\bAccel\b/, 'Ctrl') : '';
}
