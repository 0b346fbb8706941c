/** The submit dialog: a form, the task file that comes of it, and what the scheduler would do with it. */
import { CodeEditor, IEditorServices } from '@jupyterlab/codeeditor';
import { Dialog, ReactWidget } from '@jupyterlab/apputils';
import * as React from 'react';

import { Check, Draft, Submission } from '../api';
import { EMPTY, Form, asFile, asForm, pairs } from '../model/form';
import { Failure, TaskRow } from '../model/types';
import { level, levels } from '../model/words';
import { aboutEnvironment } from './account';
import { Artifacts, Named } from './artifacts';
import { Context, useLoaded } from './context';
import { Failed, Field } from './parts';

export interface Wanted {
  path: string;
  cells?: string[];
  /** Save the document; resolves when the file is what is on the screen. */
  save: () => Promise<void>;
}

const CHECK_AFTER = 300;

/** Show the dialog; resolves with the task, or null when it was cancelled. */
export async function submitDialog(
  context: Context,
  services: IEditorServices,
  wanted: Wanted
): Promise<TaskRow | null> {
  const box: { task: TaskRow | null } = { task: null };
  const dialog = new Dialog<void>({
    title: context.say(wanted.cells ? 'Submit cells of {path}' : 'Submit {path}', { path: wanted.path }),
    body: new Body(context, services, wanted, task => {
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
    private wanted: Wanted,
    private done: (task: TaskRow | null) => void
  ) {
    super();
  }

  protected override render(): JSX.Element {
    return <Loading context={this.context} services={this.services} wanted={this.wanted} done={this.done} />;
  }
}

interface Props {
  context: Context;
  services: IEditorServices;
  wanted: Wanted;
  done: (task: TaskRow | null) => void;
}

function Loading(props: Props): JSX.Element {
  const { context, wanted } = props;
  const draft = useLoaded(async () => {
    await wanted.save();
    return context.api.draft(wanted.path, wanted.cells !== undefined);
  }, [wanted]);
  if (draft.value) {
    return <Sheet {...props} draft={draft.value} />;
  }
  return (
    <div className="hai-form">
      <Failed error={draft.error} context={context} />
      {!draft.error && context.say('Loading …')}
    </div>
  );
}

/** Form and task file show the same; whichever was edited last is what is submitted. */
function Sheet(props: Props & { draft: Draft }): JSX.Element {
  const { context, wanted, draft, done } = props;
  const { say } = context;
  const begin = { ...EMPTY, ...(draft.last ? asForm(draft.last, EMPTY) : {}), name: draft.name };
  const [form, setForm] = React.useState<Form>({ ...begin, parameters: draft.parameters.join('\n') });
  const [text, setText] = React.useState<string | null>(null);
  const [view, setView] = React.useState('form');
  const [push, setPush] = React.useState(draft.workspace !== '' && !wanted.path.endsWith('.ipynb'));
  const [named, setNamed] = React.useState<Named>({});
  const [sending, setSending] = React.useState(false);
  const [failure, setFailure] = React.useState<Failure | null>(null);
  const request: Submission = {
    path: wanted.path,
    cells: wanted.cells,
    parameters: plain(pairs(form.parameters)),
    form: asFile(form),
    ...(text === null ? {} : { yaml: text })
  };
  const check = useCheck(context, request);
  const send = async () => {
    setSending(true);
    try {
      done(await context.api.submit({ ...request, draft: draft.draft, artifacts: named, push }));
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
  return (
    <div className="hai-form">
      <div className="hai-tabs" role="tablist">
        <button role="tab" className="hai-tab-button" aria-selected={view === 'form'} onClick={() => show('form')}>
          {say('Form')}
        </button>
        <button role="tab" className="hai-tab-button" aria-selected={view === 'yaml'} onClick={() => show('yaml')}>
          {say('Task file')}
        </button>
      </div>
      {view === 'form' ? (
        <Fields
          context={context}
          form={form}
          notebook={wanted.path.endsWith('.ipynb')}
          onChange={next => {
            setForm(next);
            setText(null);
          }}
        />
      ) : (
        <Editor services={props.services} text={text ?? check.value?.yaml ?? ''} onEdit={setText} />
      )}
      {view === 'form' && <Artifacts context={context} named={named} onChange={setNamed} />}
      {draft.workspace && (
        <label className="hai-check">
          <input type="checkbox" checked={push} onChange={event => setPush(event.target.checked)} />{' '}
          {say('Push the workspace {name} first, and run exactly that', { name: draft.workspace })}
        </label>
      )}
      <Outcome context={context} check={check.value} error={check.error} failure={failure} />
      <div className="hai-form-foot">
        <button className="hai-button" onClick={() => done(null)}>
          {say('Cancel')}
        </button>
        <button className="hai-button hai-primary" disabled={sending || !check.value} onClick={() => void send()}>
          {say(sending ? 'Submitting …' : 'Submit task')}
        </button>
      </div>
    </div>
  );
}

function Outcome(props: { context: Context; check: Check | null; error: Error | null; failure: Failure | null }): JSX.Element {
  const failure = props.failure ?? props.check?.error ?? (props.error as unknown as Failure | null);
  if (failure) {
    const all = failure.violations?.length ? failure.violations : null;
    return (
      <div className="hai-failed" role="alert">
        {all ? (
          <ul>
            {all.map(v => (
              <li key={v.field + v.message}>
                {v.line ? `${v.line}:${v.column} ` : ''}
                <b>{v.field}</b> {v.message}
              </li>
            ))}
          </ul>
        ) : (
          failure.message
        )}
        {failure.hint && <div className="hai-dim">{failure.hint}</div>}
      </div>
    );
  }
  return <div className="hai-outcome">{props.check ? `${props.check.message ?? ''}` : props.context.say('Checking …')}</div>;
}

function Fields(props: { context: Context; form: Form; notebook: boolean; onChange: (form: Form) => void }): JSX.Element {
  const { context, form, onChange, notebook } = props;
  const { say } = context;
  const groups = useLoaded(() => context.api.groups(), []);
  const environments = useLoaded(() => context.api.environments(), []);
  const set = (changed: Partial<Form>) => onChange({ ...form, ...changed });
  return (
    <div className="hai-fields">
      <Field label={say('Name')}>
        <input className="hai-input" autoFocus value={form.name} onChange={event => set({ name: event.target.value })} />
      </Field>
      <Field label={say('Nodes')}>
        <input
          className="hai-input"
          type="number"
          min={1}
          value={form.nodes}
          onChange={event => set({ nodes: Math.max(1, Number(event.target.value) || 1) })}
        />
      </Field>
      <Field label={say('Group')}>
        <select className="hai-input" value={form.group} onChange={event => set({ group: event.target.value })}>
          {(groups.value ?? []).every(group => group.name !== form.group) && <option value={form.group}>{form.group}</option>}
          {groups.value?.map(group => (
            <option key={group.name} value={group.name}>
              {say('{name} ({free} of {all} free)', { name: group.name, free: group.free_nodes, all: group.usable_nodes })}
            </option>
          ))}
        </select>
      </Field>
      <Field label={say('Priority')}>
        <select className="hai-input" value={form.priority} onChange={event => set({ priority: Number(event.target.value) })}>
          {levels.map(([number]) => (
            <option key={number} value={number}>
              {level(number)}
            </option>
          ))}
        </select>
      </Field>
      <Field label={say('Environment')}>
        <input
          className="hai-input"
          list="hai-environments"
          value={form.environment}
          placeholder={say('none')}
          onChange={event => set({ environment: event.target.value })}
        />
        <datalist id="hai-environments">
          {environments.value?.map(env => (
            <option
              key={`${env.owner}/${env.name}`}
              value={`${env.name}[${env.owner}]`}
              label={`${env.name}[${env.owner}]: ${aboutEnvironment(env)}`}
            />
          ))}
        </datalist>
      </Field>
      <Field label={say('Tags')}>
        <input className="hai-input" value={form.tags} onChange={event => set({ tags: event.target.value })} />
      </Field>
      <Field label={say('Time limit')}>
        <input className="hai-input" value={form.timeLimit} placeholder="2h30m" onChange={event => set({ timeLimit: event.target.value })} />
      </Field>
      <Field label={say('Retries')}>
        <input
          className="hai-input"
          type="number"
          min={0}
          value={form.maxRetries}
          onChange={event => set({ maxRetries: Math.max(0, Number(event.target.value) || 0) })}
        />
      </Field>
      <Field label={say(notebook ? 'Parameters, one name=value a line' : 'Parameters, one name=value a line (given as --name=value)')} wide>
        <textarea className="hai-input" rows={3} value={form.parameters} onChange={event => set({ parameters: event.target.value })} />
      </Field>
      <Field label={say('Variables, one NAME=VALUE a line')} wide>
        <textarea className="hai-input" rows={2} value={form.variables} onChange={event => set({ variables: event.target.value })} />
      </Field>
    </div>
  );
}

/** Lab's own editor on the task file. */
function Editor(props: { services: IEditorServices; text: string; onEdit: (text: string) => void }): JSX.Element {
  const host = React.useRef<HTMLDivElement>(null);
  const model = React.useMemo(() => new CodeEditor.Model({ mimeType: 'text/x-yaml' }), []);
  React.useEffect(() => {
    model.sharedModel.setSource(props.text);
    const editor = props.services.factoryService.newInlineEditor({ host: host.current!, model });
    model.sharedModel.changed.connect(() => props.onEdit(model.sharedModel.getSource()));
    return () => {
      editor.dispose();
      model.dispose();
    };
  }, []);
  return <div className="hai-editor jp-Editor" ref={host} />;
}

/** What the server says of the task file; asked again shortly after the last change. */
function useCheck(context: Context, request: Submission): { value: Check | null; error: Error | null } {
  const [state, setState] = React.useState<{ value: Check | null; error: Error | null }>({ value: null, error: null });
  const key = JSON.stringify(request);
  React.useEffect(() => {
    let current = true;
    const timer = window.setTimeout(() => {
      context.api.check(request).then(
        value => current && setState({ value, error: null }),
        error => current && setState(before => ({ value: before.value, error }))
      );
    }, CHECK_AFTER);
    return () => {
      current = false;
      window.clearTimeout(timer);
    };
  }, [key]);
  return state;
}

/** `lr = 0.1  # rate` of a notebook's parameters cell as a value. */
function plain(values: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value.replace(/\s+#.*$/, '')]));
}
