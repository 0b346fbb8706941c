/** Runs long commands in a terminal of JupyterLab, which shows their output, can interrupt them, and survives a reload. */
import { Dialog, showDialog } from '@jupyterlab/apputils';

import { Lab } from './lab_services';
import { Translate } from './model/language';

const CREATE = 'terminal:create-new';

/** Runs a command in a new terminal; without terminals, shows the command to the user. */
export async function runInTerminal(lab: Lab, translate: Translate, command: string): Promise<void> {
  if (!lab.app.commands.hasCommand(CREATE)) {
    const title = translate('This JupyterLab has no terminals; run this in one:');
    await showDialog({ title, body: command, buttons: [Dialog.okButton({ label: translate('Close') })] });
    return;
  }
  const widget = await lab.app.commands.execute(CREATE);
  widget.content.session.send({ type: 'stdin', content: [`${command}\r`] });
}
