/** From a file to a task: the dialog, and a word when it was handed in. */
import { Notification } from '@jupyterlab/apputils';

import { Lab } from './lab';
import { Context } from './ui/context';
import { Wanted, submitDialog } from './ui/submit';

/** Ask and submit; null says that nothing that can be submitted is open. */
export async function submit(lab: Lab, context: Context, wanted: Wanted | null): Promise<void> {
  const { board, say, shell } = context;
  if (!wanted) {
    Notification.info(say('Open a .py, .sh, .ipynb or .yml file to submit it.'), { autoClose: 5000 });
    return;
  }
  const task = await submitDialog(context, lab.editors, wanted);
  if (task) {
    board.put(task);
    board.changed();
    const actions = [{ label: say('Open'), callback: () => shell.openTask(task.id) }];
    const told = say('Task {id} {name} was submitted', { id: task.id, name: task.name });
    Notification.success(told, { autoClose: 4000, actions });
  }
}
