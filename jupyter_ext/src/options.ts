/** What the user has chosen in Lab's settings, and the language that follows from it. */
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { PLUGIN } from './lab';
import { Say, isChinese, speaker } from './model/language';

export interface Options {
  language: string;
  notifyEnd: boolean;
  saveOnNotice: boolean;
  filter: string;
  followSelection: boolean;
}

const DEFAULTS: Options = { language: 'auto', notifyEnd: true, saveOnNotice: true, filter: 'user:me', followSelection: false };

/** They change in place when the user changes them. */
export async function readOptions(registry: ISettingRegistry | null): Promise<Options> {
  try {
    const settings = await registry?.load(PLUGIN);
    const options = { ...DEFAULTS, ...(settings?.composite as Partial<Options> | undefined) };
    settings?.changed.connect(() => Object.assign(options, settings.composite));
    return options;
  } catch (error) {
    console.warn('hai-jupyter: no settings', error);
    return DEFAULTS;
  }
}

/** Lab's language if it is not English, else the browser's, unless one is set. */
export async function language(options: Options, translator: ITranslator | null): Promise<Say> {
  const labs = translator?.languageCode ?? 'en';
  const auto = labs.startsWith('en') ? document.documentElement.lang || labs : labs;
  const chosen = options.language === 'auto' ? auto : options.language;
  if (!isChinese(chosen)) {
    return speaker({});
  }
  return speaker((await import(/* webpackChunkName: "zh" */ './model/zh')).default);
}
