/** A dialog with preformatted text and several answers. */
import { Dialog } from '@jupyterlab/apputils';

import { Translate } from './model/language';

/** Asks the user; returns the key of the answer, or null. */
export async function choose(translate: Translate, title: string, body: string, answers: Record<string, string>): Promise<string | null> {
  const keys = Object.keys(answers);
  const buttons = keys.map(key => Dialog.okButton({ label: answers[key] }));
  const dialog = new Dialog({ title, body, buttons: [Dialog.cancelButton({ label: translate('Cancel') }), ...buttons] });
  dialog.addClass('hai-plain');
  const { button } = await dialog.launch();
  return button.accept ? (keys.find(key => answers[key] === button.label) ?? null) : null;
}
