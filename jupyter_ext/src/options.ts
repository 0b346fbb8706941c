/** The settings of the extension, and the language of its texts. */
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { PLUGIN } from './lab_services';
import { Translate, isChinese, translatorFor } from './model/language';

export interface Options {
  language: string;
  notifyEnd: boolean;
  saveOnNotice: boolean;
  filter: string;
  followSelection: boolean;
}

const DEFAULTS: Options = { language: 'auto', notifyEnd: true, saveOnNotice: true, filter: 'user:me', followSelection: false };

/** Reads the settings; later changes update the same object. */
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

/** Loads the language of the settings; else that of JupyterLab unless English; else that of the browser. */
export async function loadTranslator(options: Options, translator: ITranslator | null): Promise<Translate> {
  const labs = translator?.languageCode ?? 'en';
  const auto = labs.startsWith('en') ? document.documentElement.lang || labs : labs;
  const chosen = options.language === 'auto' ? auto : options.language;
  if (!isChinese(chosen)) {
    return translatorFor({});
  }
  return translatorFor((await import(/* webpackChunkName: "zh" */ './model/zh')).default);
}
