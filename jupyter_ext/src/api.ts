/** Sends all requests to the server extension. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { Socket, StreamEnvironment } from './model/feed';
import { Artifact, Check, Container, Draft, Environment, Group, Me, Message, Script, Series, Submission, Sync, Workspace } from './model/api_types';
import { Failure, Frame, TaskRow } from './model/types';
import { Point } from './model/usage';

const PATH = 'hai_jupyter';

/** An error response of the server extension. */
export class ApiError extends Error implements Failure {
  constructor(
    readonly reason: string,
    message: string,
    readonly hint = '',
    readonly violations: Failure['violations'] = []
  ) {
    super(message);
  }
}

/** Requests to the server extension. ServerConnection adds the base URL, the XSRF cookie and the token of Jupyter. */
export class Api {
  constructor(private settings: ServerConnection.ISettings) {}

  me = () => this.get<Me>('me');
  groups = () => this.get<Group[]>('groups');
  messages = () => this.get<Message[]>('messages');
  environments = () => this.get<Environment[]>('environments');
  workspaces = () => this.get<Workspace[]>('workspaces');
  memory = () => this.get<{ used: number; limit: number; of: string }>('memory');
  task = (id: number) => this.get<any>(`tasks/${id}`);
  /** Returns the URL of the manual, with {page} for the name of a page. */
  manual = () => this.get<{ url: string }>('manual');
  /** Returns the current usage of tasks. */
  currentUsage = (ids: readonly number[]) => this.get<Record<string, Point>>(`usage?ids=${ids.join(',')}`);
  /** Returns a command line that creates an environment, or installs a kernel into one. */
  environmentCommand = (spec: object) => this.post<{ command: string }>('environments/command', spec);
  /** Submits a task that checks the health of nodes. */
  checkNodes = (nodes: string[], group: string) => this.post<TaskRow>('nodes/check', { nodes, group });
  artifacts = () => this.get<Artifact[]>('artifacts');
  /** Downloads the executed notebook from the directory of the task. */
  executed = (id: number) => this.post<{ path: string }>(`tasks/${id}/executed`, {});
  usage = (id: number, first: number) => this.get<Series>(`tasks/${id}/usage?first=${first}`);
  /** Returns the status of the workspace that contains a folder; without a name if there is none. */
  workspace = (path: string) => this.get<Sync>(`workspace?path=${encodeURIComponent(path)}`);
  sync = (path: string, verb: string) => this.post<Sync>(`workspace/${verb}`, { path });
  container = (id: number) => this.get<Container>(`containers/${id}`);
  createContainer = (spec: object) => this.post<TaskRow>('containers', spec);
  openContainer = (id: number, service: string) => this.post<{ link: string }>(`containers/${id}/open`, { service });
  renewContainer = (id: number) => this.post<Container>(`containers/${id}/renew`, {});
  deleteContainer = (id: number) => this.request<object>(`containers/${id}`, { method: 'DELETE' });
  script = (spec: { path: string; specials?: string; clash?: string }) => this.post<Script>('notebook/script', spec);
  clear = (path: string) => this.post<{ copy: string; before: number; after: number }>('notebook/clear', { path });
  /** Reports that all open documents are saved. */
  saved = () => this.post<object>('saved', {});
  check = (submission: Submission) => this.post<Check>('check', submission);
  submit = (submission: Submission) => this.post<TaskRow>('submit', submission);

  draft(path: string, cells: boolean): Promise<Draft> {
    return this.get<Draft>(`draft?path=${encodeURIComponent(path)}${cells ? '&cells=1' : ''}`);
  }

  service(id: number, service: string, action: string): Promise<Container> {
    return this.post<Container>(`containers/${id}/services/${service}/${action}`, {});
  }

  verb(id: number, verb: string, body: Record<string, unknown> = {}): Promise<TaskRow> {
    return this.post<TaskRow>(`tasks/${id}/${verb}`, body);
  }

  /** Returns the URL from which the whole log of a task can be downloaded. */
  logUrl(id: number): string {
    return URLExt.join(this.settings.baseUrl, PATH, `tasks/${id}/log.txt`);
  }

  /** Opens a websocket to one of the live handlers. */
  socket(path: string): WebSocket {
    let url = URLExt.join(this.settings.wsUrl, PATH, path);
    if (this.settings.appendToken && this.settings.token) {
      url += `${url.includes('?') ? '&' : '?'}token=${encodeURIComponent(this.settings.token)}`;
    }
    return new this.settings.WebSocket(url) as WebSocket;
  }

  /** Returns the connections and timers that a feed uses. */
  streamEnvironment(): StreamEnvironment {
    return {
      socket: query => this.socket(`events?${query}`) as unknown as Socket,
      poll: query => this.get<Frame>(`state?${query}`),
      later: (seconds, call) => window.setTimeout(call, seconds * 1000),
      cancel: timer => window.clearTimeout(timer)
    };
  }

  private get<T>(path: string): Promise<T> {
    return this.request<T>(path, { method: 'GET' });
  }

  private post<T>(path: string, body: unknown): Promise<T> {
    return this.request<T>(path, { method: 'POST', body: JSON.stringify(body) });
  }

  private async request<T>(path: string, init: RequestInit): Promise<T> {
    const url = URLExt.join(this.settings.baseUrl, PATH, path);
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(url, init, this.settings);
    } catch (error) {
      throw new ApiError('JUPYTER_UNREACHABLE', `the Jupyter server does not answer: ${error}`);
    }
    const data = await response.json().catch(() => ({}));
    if (!response.ok) {
      const message = data.message ?? `${response.status} ${response.statusText}`;
      throw new ApiError(data.reason ?? 'HTTP', message, data.hint, data.violations);
    }
    return data as T;
  }
}
