// What tinymodels/widgets/explorer.py says at a setting, a second time, for pages without Python.
// The tables come from Python; a test compares every sentence with Python's own.

function looker({ presets, own, yardsticks, axis, ticks }) {
  const SIZES = { 32: "4", 16: "2", 8: "1", 4: "0.5" };
  const UNITS = ["kB", "MB", "GB", "TB", "PB", "EB"];
  const NUMBERS = ["layers", "kv_heads", "head_dim", "bits"];

  const grouped = (n) => n.toLocaleString("en-US", { maximumFractionDigits: 4 });
  const counted = (n, what) => (n === 1 ? `${n} ${what}` : `${n} ${what}s`);

  /** n / 1000^power with `digits` decimals, a half to the even digit: all in whole numbers. */
  function rounded(n, power, digits) {
    const over = 1000n ** BigInt(power);
    const scaled = BigInt(n) * 10n ** BigInt(digits);
    let whole = scaled / over;
    const twice = 2n * (scaled % over);
    if (twice > over || (twice === over && whole % 2n)) whole += 1n;
    return whole;
  }

  function short(n) {
    if (n < 1000) return n === 1 ? "1 byte" : `${grouped(n)} bytes`;
    for (let power = 1; power <= UNITS.length; power += 1) {
      for (const digits of [2, 1, 0]) {
        const value = rounded(n, power, digits);
        if (value >= 1000n) continue; // three digits: a fourth would be one too many
        const text = value.toString().padStart(digits + 1, "0");
        const cut = text.length - digits;
        return `${text.slice(0, cut)}${digits ? "." : ""}${text.slice(cut)} ${UNITS[power - 1]}`;
      }
    }
    return `${grouped(n)} bytes`;
  }
  const full = (n) => (n < 1000 ? short(n) : `${short(n)} (${grouped(n)} bytes)`);

  function compare(nbytes, stick) {
    const share = nbytes / stick.nbytes;
    if (share >= 9.95) return `${Number(share.toFixed(0)).toLocaleString("en-US")} ${stick.many}`;
    if (share >= 1.05) return `${share.toFixed(1)} ${stick.many}`;
    const percent = 100 * share;
    if (percent < 0.1) return `less than 0.1 % of ${stick.label}`;
    return `${percent.toFixed(percent >= 10 ? 0 : 1)} % of ${stick.label}`;
  }

  function along(nbytes) {
    const [low, high] = axis.map(Math.log10);
    return (Math.log10(nbytes) - low) / (high - low);
  }

  function settle(settings, changed) {
    if (changed === "model" && settings.model !== own) {
      return { ...settings, ...presets[settings.model], context: settings.context };
    }
    if (changed === "model") return { ...settings };
    const same = ([, shape]) => NUMBERS.every((name) => shape[name] === settings[name]);
    const found = Object.entries(presets).find(same);
    return { ...settings, model: found ? found[0] : own };
  }

  function view({ layers, kv_heads, head_dim, bits, context }) {
    const rate = Math.floor((2 * layers * kv_heads * head_dim * bits) / 8);
    const total = rate * context;
    const tokens = `${grouped(context)} tokens`;
    const size = SIZES[bits];
    const [photo, phone, card] = yardsticks.map((stick) => compare(total, stick));
    const mark = (stick) => ({
      label: stick.label, text: stick.text, end: along(stick.nbytes), ours: false,
    });
    return {
      number: grouped(rate),
      unit: rate === 1 ? "byte a token" : "bytes a token",
      lines: [
        `2 (key and value) × ${counted(layers, "layer")} × ${counted(kv_heads, "kv head")}`
          + ` × ${head_dim} × ${size} ${size === "1" ? "byte" : "bytes"}`,
        `${tokens}: ${full(total)}`,
        `That is ${photo}, ${phone}, ${card}.`,
      ],
      alt: `A cache of ${short(total)} at ${tokens}, on a logarithmic scale beside a photo of 3 MB,`
        + " a phone's memory of 8 GB and one card of 80 GB.",
      say: `${grouped(rate)} bytes a token, ${short(total)} at ${tokens}: ${card}.`,
      chart: {
        bars: [
          { label: "this cache", text: short(total), end: along(total), ours: true },
          ...yardsticks.map(mark),
        ],
        ticks,
      },
    };
  }

  return (wanted, changed) => {
    const settings = settle(wanted, changed);
    return { settings, view: view(settings) };
  };
}
