"""What one cache entry is made of: fields, number formats, scales, and so its bytes.

A row is its fields one after another, in the order written here. A field is `count` numbers in
one format. Scales are fields too: they take room like everything else. No torch here: this file
only counts, `cache/packing.py` fills.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A number format and its width in bits."""

    name: str
    bits: int


F64 = Format("float64", 64)
F32 = Format("float32", 32)
BF16 = Format("bfloat16", 16)
E4M3 = Format("e4m3", 8)  # 8-bit float, FN variant, largest value 448
UE8M0 = Format("ue8m0", 8)  # a power of two: the exponent alone
E2M1 = Format("e2m1", 4)  # 4-bit float: 0, .5, 1, 1.5, 2, 3, 4, 6 and a sign
PAD = Format("pad", 8)


@dataclass(frozen=True)
class Field:
    """`count` numbers of one format. `scales` names the field that holds this one's scales,
    one for every `block` values."""

    name: str
    count: int
    fmt: Format
    scales: str | None = None
    block: int | None = None

    @property
    def nbytes(self) -> int:
        bits = self.count * self.fmt.bits
        if bits % 8:
            raise ValueError(f"{self.name}: {self.count} x {self.fmt.bits} bits end inside a byte")
        return bits // 8


@dataclass(frozen=True)
class Layout:
    """One row: its fields in order. `values` is how many numbers the model gets back from it."""

    name: str
    fields: tuple[Field, ...]

    @property
    def nbytes(self) -> int:
        return sum(f.nbytes for f in self.fields)

    @property
    def values(self) -> int:
        return sum(f.count for f in self.data)

    @property
    def data(self) -> tuple[Field, ...]:
        """The fields that carry the model's numbers: all but scales and padding."""
        scales = {f.scales for f in self.fields}
        return tuple(f for f in self.fields if f.name not in scales and f.fmt is not PAD)

    def offsets(self) -> dict[str, tuple[int, int]]:
        """{field: (first byte, one past its last byte)} within the row."""
        spans, at = {}, 0
        for f in self.fields:
            spans[f.name] = (at, at + f.nbytes)
            at += f.nbytes
        return spans

    def terms(self) -> str:
        """The arithmetic as text: "256 + 32"."""
        return " + ".join(str(f.nbytes) for f in self.fields)


def at_bits(layout: Layout, bits: int) -> Layout:
    """The row's values at `bits` bits each, one after another and without scales.

    What a report means by "6 bits a value on average": 576 values take 432 bytes. Raises
    ValueError for bits outside 1 to 64 and for a row that would end inside a byte.
    """
    if isinstance(bits, bool) or not isinstance(bits, int) or not 1 <= bits <= 64:
        raise ValueError(f"bits is {bits!r}; a cached value takes 1 to 64 bits")
    values = Field("values", layout.values, Format(f"{bits}-bit", bits))
    row = Layout(f"{layout.name}, {bits} bits a value", (values,))
    if row.values * bits % 8:
        raise ValueError(f"{layout.name}: {row.values} values of {bits} bits end inside a byte")
    return row


def scale_count(values: int, block: int) -> int:
    """How many scales `values` numbers need, one a block; a short last block has one too."""
    return -(-values // block)


def scaled(
    name: str, count: int, fmt: Format, scale_fmt: Format, block: int
) -> tuple[Field, Field]:
    """A field and the field of its scales, named `<name>_scale`, one for every `block` values."""
    scale = Field(f"{name}_scale", scale_count(count, block), scale_fmt)
    return Field(name, count, fmt, scales=scale.name, block=block), scale


# ---------------------------------------------------------------- the rows of each generation


def plain(name: str, fmt: Format, **counts: int) -> Layout:
    """Fields of one format and no scales: `plain("kv", BF16, key=1024, value=1024)`."""
    return Layout(name, tuple(Field(k, n, fmt) for k, n in counts.items()))


def key_value(kv_heads: int, head_dim: int, fmt: Format = BF16) -> Layout:
    """V1: keys and values of every kv head. 8 heads x 128 in bf16: 4,096 bytes."""
    n = kv_heads * head_dim
    return plain("key + value", fmt, key=n, value=n)


def latent(kv_rank: int, rope_dim: int, fmt: Format = BF16) -> Layout:
    """V2, V3: the latent and the shared rope key. 512 + 64 in bf16: 1,152 bytes."""
    return plain("latent + rope", fmt, latent=kv_rank, rope=rope_dim)


def latent_fp8(kv_rank: int, rope_dim: int) -> Layout:
    """V3.2: FP8 latent, one fp32 scale per 128, bf16 rope key. 512 + 16 + 128 = 656 bytes."""
    latent_and_scales = scaled("latent", kv_rank, E4M3, F32, 128)
    return Layout("FP8 latent + rope", (*latent_and_scales, Field("rope", rope_dim, BF16)))


def index_fp8(dim: int) -> Layout:
    """V3.2: an indexer key in FP8 with one fp32 scale per 128. 128 + 4 = 132 bytes."""
    return Layout("FP8 index key", scaled("index", dim, E4M3, F32, 128))


def index_fp4(dim: int) -> Layout:
    """V4, V4.1: an indexer key in MXFP4, one UE8M0 scale per 32. 64 + 4 = 68 bytes."""
    return Layout("MXFP4 index key", scaled("index", dim, E2M1, UE8M0, 32))


def shared_kv_fp8(nope_dim: int, rope_dim: int) -> Layout:
    """V4: FP8 values, bf16 rope, a UE8M0 scale per 64, scales padded to 8 bytes.

    448 + 128 + 7 + 1 = 584 bytes.
    """
    nope, scale = scaled("nope", nope_dim, E4M3, UE8M0, 64)
    fields = [nope, Field("rope", rope_dim, BF16), scale]
    if pad := -scale.count % 8:
        fields.append(Field("pad", pad, PAD))
    return Layout("FP8 + bf16 rope", tuple(fields))


def entry_fp4(dim: int) -> Layout:
    """V4.1's far entry: packed E2M1, an E4M3 scale per 16. 256 + 32 = 288 bytes."""
    return Layout("FP4 entry", scaled("latent", dim, E2M1, E4M3, 16))


def entry_fp8(dim: int) -> Layout:
    """V4.1's window entry: FP8, a UE8M0 scale per 32. 512 + 16 = 528 bytes."""
    return Layout("FP8 entry", scaled("latent", dim, E4M3, UE8M0, 32))
