/** The submit dialog: a form, its task file, changes since the last submission, and the prediction of the scheduler. */
import { IEditorServices } from '@jupyterlab/codeeditor';
import { Dialog, ReactWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { Draft, Submission } from '../model/api_types';
import { EMPTY, Form, asFile, asForm, pairs, same } from '../model/form';
import { Failure, TaskRow } from '../model/types';
import { Artifacts, Named } from './artifacts';
import { Changes } from './submission_diff';
import { Outcome, useCheck } from './validation';
import { Context, useLoaded } from './context';
import { Editor } from './editor';
import { Fields } from './fields';
import { Failed, Reload, beside } from './common';

export interface SubmitTarget {
  path: string;
  cells?: string[];
  /** Save the document; resolves when the file is what is on the screen. */
  save: () => Promise<void>;
}

/** Show the dialog; resolves with the task, or null when it was cancelled. */
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
    buttons: [], // those in the body know when they may be pressed
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
    return <Sheet {...props} draft={draft.value} />;
  }
  return (
    <div className="hai-form">
      <Failed error={draft.error} context={context} />
      {!draft.error && context.translate('Loading …')}
      <div className="hai-form-foot">
        {draft.error && <Reload context={context} onClick={draft.reload} />}
        {/* The focus has to be inside for Escape */}
        <button className="hai-button" autoFocus onClick={() => props.done(null)}>
          {context.translate('Cancel')}
        </button>
      </div>
    </div>
  );
}

/** Form and task file show the same; the one edited last is submitted, and saved as a draft. */
function Sheet(props: Props & { draft: Draft }): JSX.Element {
  const { context, target, draft, done } = props;
  const { translate, drafts } = context;
  const key = draft.name;
  const begun: Form = {
    ...EMPTY,
    ...(draft.begin ? asForm(draft.begin, EMPTY) : {}),
    name: draft.name,
    parameters: draft.parameters.join('\n')
  };
  const saved = drafts.of(key);
  const [form, setForm] = React.useState<Form>({ ...begun, ...saved?.form });
  const [text, setText] = React.useState<string | null>(saved?.text ?? null);
  const [view, setView] = React.useState(saved?.text ? 'yaml' : 'form');
  const [push, setPush] = React.useState(draft.workspace !== '' && !target.path.endsWith('.ipynb'));
  const [named, setNamed] = React.useState<Named>({});
  const [sending, setSending] = React.useState(false);
  const [failure, setFailure] = React.useState<Failure | null>(null);
  const edited = text !== null || !same(form, begun);
  React.useEffect(() => drafts.put(key, edited ? { form, text } : null), [form, text]);
  const request: Submission = {
    path: target.path,
    cells: target.cells,
    parameters: plain(pairs(form.parameters)),
    form: asFile(form, begun),
    ...(text === null ? {} : { yaml: text })
  };
  React.useEffect(() => setFailure(null), [form, text, named, push]); // it was of what is not there any more
  const check = useCheck(context, request);
  const send = async () => {
    if (sending) {
      return; // the button is not disabled: it would lose the focus
    }
    setSending(true);
    setFailure(null);
    try {
      const task = await context.api.submit({ ...request, draft: draft.draft, artifacts: named, push });
      drafts.put(key, null);
      done(task);
    } catch (error) {
      setFailure(error as Failure);
      setSending(false);
    }
  };
  const show = (next: string) => {
    if (next === 'form' && text !== null && check.value && !check.value.error?.violations?.length) {
      setForm(asForm(check.value.spec, form));
    }
    setView(next);
  };
  const reset = () => {
    setForm(begun);
    setText(null);
    setView('form');
  };
  const tabs = [['form', 'Form'], ['yaml', 'Task file'], ...(draft.changes === null ? [] : [['changes', 'Changes']])];
  return (
    <div className="hai-form" onKeyDown={stayInside}>
      <div className="hai-tabs" role="tablist" onKeyDown={beside}>
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
          begun={begun}
          path={target.path}
          onChange={next => {
            setForm(next);
            setText(null);
          }}
        />
      )}
      {view === 'yaml' && <Editor services={props.services} text={text ?? check.value?.yaml ?? ''} onEdit={setText} />}
      {view === 'changes' && <Changes context={context} text={draft.changes ?? ''} />}
      {view === 'form' && <Artifacts context={context} named={named} onChange={setNamed} />}
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

/** From its last control Tab goes to the first: Lab's dialogs see to that for buttons of their own only. */
function stayInside(event: React.KeyboardEvent<HTMLElement>): void {
  const controls = [...event.currentTarget.querySelectorAll<HTMLElement>('button, input, select, textarea, [contenteditable=true]')];
  const usable = controls.filter(control => !control.matches(':disabled') && control.tabIndex >= 0);
  const [from, to] = event.shiftKey ? [usable[0], usable.at(-1)] : [usable.at(-1), usable[0]];
  if (event.key === 'Tab' && event.target === from && !event.defaultPrevented) {
    event.preventDefault();
    event.stopPropagation();
    to?.focus();
  }
}

/** `lr = 0.1  # rate` of a notebook's parameters cell as a value. */
function plain(values: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value.replace(/\s+#.*$/, '')]));
}
