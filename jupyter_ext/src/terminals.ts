/** Commands that take long run in a terminal of Lab's: it shows what they print, can be interrupted, and survives a reload. */
import { Dialog, showDialog } from '@jupyterlab/apputils';

import { Lab } from './lab';
import { Say } from './model/language';

const CREATE = 'terminal:create-new';

/** Type a command into a new terminal; where there are none, show it to be typed elsewhere. */
export async function typed(lab: Lab, say: Say, command: string): Promise<void> {
  if (!lab.app.commands.hasCommand(CREATE)) {
    const title = say('This JupyterLab has no terminals; run this in one:');
    await showDialog({ title, body: command, buttons: [Dialog.okButton({ label: say('Close') })] });
    return;
  }
  const widget = await lab.app.commands.execute(CREATE);
  widget.content.session.send({ type: 'stdin', content: [`${command}\r`] });
}
