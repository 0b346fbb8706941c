/** The submit dialog: a form, its task file, changes since the last submission, and the prediction of the scheduler. */
import { IEditorServices } from '@jupyterlab/codeeditor';
import { Dialog, ReactWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { Draft, Submission } from '../model/api_types';
import { EMPTY, Form, areEqual, parsePairs, toForm, toTaskFile } from '../model/form';
import { Failure, TaskRow } from '../model/types';
import { Artifacts, MappedArtifacts } from './artifacts';
import { Changes } from './submission_diff';
import { Outcome, useCheck } from './validation';
import { Context, useLoaded } from './context';
import { Editor } from './editor';
import { Fields } from './fields';
import { Failed, Reload, switchTabByArrow } from './common';

export interface SubmitTarget {
  path: string;
  cells?: string[];
  /** Saves the document; resolves when the file has the content of the screen. */
  save: () => Promise<void>;
}

/** Shows the dialog; resolves with the task, or null if the user cancels. */
export async function submitDialog(
  context: Context,
  services: IEditorServices,
  target: SubmitTarget
): Promise<TaskRow | null> {
  const box: { task: TaskRow | null } = { task: null };
  const dialog = new Dialog<void>({
    title: context.translate(target.cells ? 'Submit cells of {path}' : 'Submit {path}', { path: target.path }),
    body: new Body(context, services, target, task => {
      box.task = task;
      dialog.reject();
    }),
    buttons: [], // the body has its own buttons, which it can disable
    hasClose: true
  });
  dialog.addClass('hai-dialog');
  await dialog.launch();
  return box.task;
}

class Body extends ReactWidget {
  constructor(
    private context: Context,
    private services: IEditorServices,
    private target: SubmitTarget,
    private done: (task: TaskRow | null) => void
  ) {
    super();
  }

  protected override render(): JSX.Element {
    return <Loading context={this.context} services={this.services} target={this.target} done={this.done} />;
  }
}

interface Props {
  context: Context;
  services: IEditorServices;
  target: SubmitTarget;
  done: (task: TaskRow | null) => void;
}

function Loading(props: Props): JSX.Element {
  const { context, target } = props;
  const draft = useLoaded(async () => {
    await Promise.all([target.save(), context.drafts.ready]);
    return context.api.draft(target.path, target.cells !== undefined);
  }, [target]);
  if (draft.value) {
    return <SubmitForm {...props} draft={draft.value} />;
  }
  return (
    <div className="hai-form">
      <Failed error={draft.error} context={context} />
      {!draft.error && context.translate('Loading …')}
      <div className="hai-form-foot">
        {draft.error && <Reload context={context} onClick={draft.reload} />}
        {/* Escape works only while the focus is in the dialog. */}
        <button className="hai-button" autoFocus onClick={() => props.done(null)}>
          {context.translate('Cancel')}
        </button>
      </div>
    </div>
  );
}

/** Form and task file show the same values; the one that was edited last is submitted, and saved as a draft. */
function SubmitForm(props: Props & { draft: Draft }): JSX.Element {
  const { context, target, draft, done } = props;
  const { translate, drafts } = context;
  const key = draft.name;
  const initial: Form = {
    ...EMPTY,
    ...(draft.begin ? toForm(draft.begin, EMPTY) : {}),
    name: draft.name,
    parameters: draft.parameters.join('\n')
  };
  const saved = drafts.get(key);
  const [form, setForm] = React.useState<Form>({ ...initial, ...saved?.form });
  const [text, setText] = React.useState<string | null>(saved?.text ?? null);
  const [view, setView] = React.useState(saved?.text ? 'yaml' : 'form');
  const [push, setPush] = React.useState(draft.workspace !== '' && !target.path.endsWith('.ipynb'));
  const [mappedArtifacts, setMappedArtifacts] = React.useState<MappedArtifacts>({});
  const [sending, setSending] = React.useState(false);
  const [failure, setFailure] = React.useState<Failure | null>(null);
  const edited = text !== null || !areEqual(form, initial);
  React.useEffect(() => drafts.put(key, edited ? { form, text } : null), [form, text]);
  const request: Submission = {
    path: target.path,
    cells: target.cells,
    parameters: withoutComments(parsePairs(form.parameters)),
    form: toTaskFile(form, initial),
    ...(text === null ? {} : { yaml: text })
  };
  React.useEffect(() => setFailure(null), [form, text, mappedArtifacts, push]); // the failure belongs to the old values
  const check = useCheck(context, request);
  const send = async () => {
    if (sending) {
      return; // the button is not disabled, because it would lose the focus
    }
    setSending(true);
    setFailure(null);
    try {
      const task = await context.api.submit({ ...request, draft: draft.draft, artifacts: mappedArtifacts, push });
      drafts.put(key, null);
      done(task);
    } catch (error) {
      setFailure(error as Failure);
      setSending(false);
    }
  };
  const show = (next: string) => {
    if (next === 'form' && text !== null && check.value && !check.value.error?.violations?.length) {
      setForm(toForm(check.value.spec, form));
    }
    setView(next);
  };
  const reset = () => {
    setForm(initial);
    setText(null);
    setView('form');
  };
  const tabs = [['form', 'Form'], ['yaml', 'Task file'], ...(draft.changes === null ? [] : [['changes', 'Changes']])];
  return (
    <div className="hai-form" onKeyDown={keepFocusInside}>
      <div className="hai-tabs" role="tablist" onKeyDown={switchTabByArrow}>
        {tabs.map(([name, label]) => (
          <button key={name} role="tab" className="hai-tab-button" aria-selected={view === name} onClick={() => show(name!)}>
            {translate(label!)}
          </button>
        ))}
        {edited && (
          <button className="hai-link hai-end" onClick={reset}>
            {translate('Begin anew')}
          </button>
        )}
      </div>
      {view === 'form' && (
        <Fields
          context={context}
          form={form}
          initial={initial}
          path={target.path}
          onChange={next => {
            setForm(next);
            setText(null);
          }}
        />
      )}
      {view === 'yaml' && <Editor services={props.services} text={text ?? check.value?.yaml ?? ''} onEdit={setText} />}
      {view === 'changes' && <Changes context={context} text={draft.changes ?? ''} />}
      {view === 'form' && <Artifacts context={context} mapped={mappedArtifacts} onChange={setMappedArtifacts} />}
      {draft.workspace && (
        <label className="hai-check">
          <input type="checkbox" checked={push} onChange={event => setPush(event.target.checked)} />{' '}
          {translate('Push the workspace {name} first, and run exactly that', { name: draft.workspace })}
        </label>
      )}
      <Outcome context={context} check={check.value} error={check.error} failure={failure} />
      <div className="hai-form-foot">
        <button className="hai-button" onClick={() => done(null)}>
          {translate('Cancel')}
        </button>
        <button className="hai-button hai-primary" disabled={!check.value} aria-busy={sending} onClick={() => void send()}>
          {translate(sending ? 'Submitting …' : 'Submit task')}
        </button>
      </div>
    </div>
  );
}

/** Moves the focus from the last control to the first; dialogs of Lab do so only for their own buttons. */
function keepFocusInside(event: React.KeyboardEvent<HTMLElement>): void {
  const controls = [...event.currentTarget.querySelectorAll<HTMLElement>('button, input, select, textarea, [contenteditable=true]')];
  const usable = controls.filter(control => !control.matches(':disabled') && control.tabIndex >= 0);
  const [from, to] = event.shiftKey ? [usable[0], usable.at(-1)] : [usable.at(-1), usable[0]];
  if (event.key === 'Tab' && event.target === from && !event.defaultPrevented) {
    event.preventDefault();
    event.stopPropagation();
    to?.focus();
  }
}

/** Removes comments from values such as `0.1  # rate`, which come from the parameters cell of a notebook. */
function withoutComments(values: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value.replace(/\s+#.*$/, '')]));
}
