/** Opens the submit dialog for a file, and confirms the submitted task. */
import { Notification } from '@jupyterlab/apputils';

import { Lab } from './lab_services';
import { Context } from './ui/context';
import { SubmitTarget, submitDialog } from './ui/submit';

/** Shows the dialog and submits the file; null means that no file that can be submitted is open. */
export async function submitFile(lab: Lab, context: Context, target: SubmitTarget | null): Promise<void> {
  const { store, translate, shell } = context;
  if (!target) {
    Notification.info(translate('Open a .py, .sh, .ipynb or .yml file to submit it.'), { autoClose: 5000 });
    return;
  }
  const task = await submitDialog(context, lab.editors, target);
  if (task) {
    store.put(task);
    store.changed();
    const actions = [{ label: translate('Open'), callback: () => shell.openTask(task.id) }];
    const message = translate('Task {id} {name} was submitted', { id: task.id, name: task.name });
    Notification.success(message, { autoClose: 4000, actions });
  }
}
