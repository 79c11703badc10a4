"""transformers' models, tiny, made from their configurations with random weights."""
import torch
import transformers
from torch import nn

from registry import MODELS, SAMPLES, Example, classes, images, tokens

VOCABULARY = 96
LENGTH = 12
WIDTH = 32
LAYERS = 2
HEADS = 4
INNER = 64
# The usual names of the sizes; a configuration takes those that it has.
SIZES = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
         "intermediate_size": INNER, "max_position_embeddings": 32, "num_labels": 5, "use_cache": False}


class Logits(nn.Module):
    """Of a model of transformers the first output, from inputs without keywords, as exporters want them."""

    def __init__(self, model: nn.Module, names: list[str], output: str = "logits"):
        super().__init__()
        self.model = model
        self.names = names
        self.output = output

    def forward(self, first: torch.Tensor, second: torch.Tensor | None = None) -> torch.Tensor:
        inputs = dict(zip(self.names, (first, second)))
        # Without a mask, decoders look for packed samples, with an operator that the old exporter lacks.
        if torch.jit.is_tracing() and self.names == ["input_ids"]:
            inputs["attention_mask"] = torch.ones_like(first)
        if torch.jit.is_tracing() and "decoder_input_ids" in self.names:
            inputs["decoder_attention_mask"] = torch.ones_like(second)
        return getattr(self.model(**inputs, return_dict=True), self.output)


def without_dropout(config: transformers.PreTrainedConfig) -> transformers.PreTrainedConfig:
    for key, value in list(vars(config).items()):
        if isinstance(value, transformers.PreTrainedConfig):
            without_dropout(value)
        elif "drop" in key and isinstance(value, float) or key in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
            setattr(config, key, 0.0)
    return config


def module_of(kind: str, config: transformers.PreTrainedConfig, names: list[str], output: str = "logits") -> nn.Module:
    return Logits(getattr(transformers, kind)(without_dropout(config)).float(), names, output)


def configuration(family: str, **more) -> transformers.PreTrainedConfig:
    sizes = {**SIZES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **more}
    return getattr(transformers, family + "Config")(**sizes)


def classifier(family: str, head: str = "ForSequenceClassification", masked: bool = False, **more) -> Example:
    """Tokens to a class; `masked`: with an attention mask that hides the ends of some samples."""
    inputs = {"input_ids": tokens(VOCABULARY, LENGTH)}
    if masked:
        lengths = torch.randint(LENGTH // 2, LENGTH + 1, (SAMPLES, 1))
        inputs["attention_mask"] = (torch.arange(LENGTH) < lengths).long()
    module = module_of(family + head, configuration(family, **more), list(inputs))
    return Example(module, inputs, classes(5), learning_rate=0.1, transformer=True)


def predictor(family: str, head: str = "ForCausalLM", forms: tuple[str, ...] = (), **more) -> Example:
    """Tokens to a token at each position."""
    module = module_of(family + head, configuration(family, **more), ["input_ids"])
    return Example(module, {"input_ids": tokens(VOCABULARY, LENGTH)}, classes(VOCABULARY, LENGTH), learning_rate=0.1,
                   transformer=True, forms=forms)


# ---- encoders

@MODELS.add
def bert() -> Example:
    return classifier("Bert", masked=True)


@MODELS.add
def bert_mlm() -> Example:
    return predictor("Bert", "ForMaskedLM", forms=("raw",))


@MODELS.add
def roberta() -> Example:
    return classifier("Roberta", max_position_embeddings=34)


@MODELS.add
def distilbert() -> Example:
    return classifier("DistilBert", masked=True, dim=WIDTH, hidden_dim=INNER, n_layers=LAYERS, n_heads=HEADS)


@MODELS.add
def albert() -> Example:
    return classifier("Albert", embedding_size=16)


@MODELS.add
def electra() -> Example:
    return classifier("Electra", embedding_size=16)


@MODELS.add
def deberta_v2() -> Example:
    return classifier("DebertaV2", relative_attention=True, position_buckets=4, max_relative_positions=16,
                      pos_att_type=["p2c", "c2p"], pooler_hidden_size=WIDTH)


@MODELS.add
def mpnet() -> Example:
    return classifier("MPNet")


@MODELS.add
def modernbert() -> Example:
    return classifier("ModernBert", attn_implementation="eager", cls_token_id=1, sep_token_id=2)


# ---- decoders

@MODELS.add
def gpt2() -> Example:
    return predictor("GPT2", "LMHeadModel", forms=("raw",), n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=16)


@MODELS.add
def gpt_neox() -> Example:
    return predictor("GPTNeoX")


@MODELS.add
def gptj() -> Example:
    return predictor("GPTJ", n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=16, rotary_dim=4)


@MODELS.add
def opt() -> Example:
    return predictor("OPT", ffn_dim=INNER, word_embed_proj_dim=WIDTH)


@MODELS.add
def bloom() -> Example:
    return predictor("Bloom", n_layer=LAYERS, n_head=HEADS)


@MODELS.add
def llama() -> Example:
    return predictor("Llama", forms=("raw",), num_key_value_heads=2)


@MODELS.add
def mistral() -> Example:
    return predictor("Mistral", num_key_value_heads=2, head_dim=8, sliding_window=4)


@MODELS.add
def qwen2() -> Example:
    return predictor("Qwen2", num_key_value_heads=2, tie_word_embeddings=True)


@MODELS.add
def gemma() -> Example:
    return predictor("Gemma", num_key_value_heads=1, head_dim=8)


@MODELS.add
def phi() -> Example:
    return predictor("Phi", num_key_value_heads=4)


@MODELS.add
def mixtral() -> Example:
    return predictor("Mixtral", forms=("raw",), num_key_value_heads=2, num_local_experts=4, head_dim=8)


@MODELS.add
def mamba() -> Example:
    return predictor("Mamba", forms=("raw",), state_size=4, expand=2, conv_kernel=4)


# ---- encoders with decoders

def translator(family: str, **more) -> Example:
    inputs = {"input_ids": tokens(VOCABULARY, LENGTH), "decoder_input_ids": tokens(VOCABULARY, 8)}
    sizes = {"d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "encoder_attention_heads": HEADS,
             "decoder_attention_heads": HEADS, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER,
             "decoder_start_token_id": 1, "forced_eos_token_id": None, **more}
    head = {"Bart": "ForConditionalGeneration", "T5": "ForConditionalGeneration", "Marian": "MTModel"}[family]
    module = module_of(family + head, configuration(family, **sizes), list(inputs))
    return Example(module, inputs, classes(VOCABULARY, 8), learning_rate=0.1, transformer=True)


@MODELS.add
def t5() -> Example:
    return translator("T5", d_kv=8, d_ff=INNER, num_layers=LAYERS, num_heads=HEADS, relative_attention_num_buckets=8)


@MODELS.add
def bart() -> Example:
    return translator("Bart")


@MODELS.add
def marian() -> Example:
    return translator("Marian", scale_embedding=True)


@MODELS.add
def whisper() -> Example:
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=8, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=INNER, decoder_ffn_dim=INNER,
        max_source_positions=16, max_target_positions=16, use_cache=False, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, begin_suppress_tokens=None)
    inputs = {"input_features": torch.randn(SAMPLES, 8, 32), "decoder_input_ids": tokens(VOCABULARY, 8)}
    module = module_of("WhisperForConditionalGeneration", config, list(inputs))
    return Example(module, inputs, classes(VOCABULARY, 8), learning_rate=0.1, transformer=True)


# ---- images and sound

def vision(family: str, head: str = "ForImageClassification", **more) -> Example:
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
             "intermediate_size": INNER, "image_size": 32, "patch_size": 8, "num_labels": 10, **more}
    config = getattr(transformers, family + "Config")(**{k: v for k, v in sizes.items() if v is not None})
    module = module_of(family + head, config, ["pixel_values"])
    return Example(module, {"pixel_values": images()}, classes(), learning_rate=0.1, transformer=True)


@MODELS.add
def vit() -> Example:
    return vision("ViT")


@MODELS.add
def deit() -> Example:
    return vision("DeiT")


@MODELS.add
def swin() -> Example:
    return vision("Swin", embed_dim=16, depths=[2, 1], num_heads=[2, 4], window_size=4, patch_size=2,
                  hidden_size=None, num_hidden_layers=None, num_attention_heads=None)


@MODELS.add
def beit() -> Example:
    return vision("Beit", use_relative_position_bias=True, layer_scale_init_value=0.1)


@MODELS.add
def segformer() -> Example:
    example = vision("Segformer", num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32],
                     patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2],
                     hidden_size=None, num_hidden_layers=None, patch_size=None)
    example.transformer = False
    return example


@MODELS.add
def clip() -> Example:
    """Contrastive: the scores of each image for each text of its batch."""
    keys = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    sizes = {key: SIZES[key] for key in keys}
    config = transformers.CLIPConfig(
        text_config={**sizes, "vocab_size": VOCABULARY, "max_position_embeddings": LENGTH, "projection_dim": 16,
                     "eos_token_id": VOCABULARY - 1, "bos_token_id": 1, "pad_token_id": 0},
        vision_config={**sizes, "image_size": 16, "patch_size": 8, "projection_dim": 16}, projection_dim=16)
    ids = tokens(VOCABULARY, LENGTH)
    ids[:, -1] = VOCABULARY - 1
    inputs = {"input_ids": ids, "pixel_values": images(3, 16)}
    module = module_of("CLIPModel", config, list(inputs), "logits_per_image")
    return Example(module, inputs, torch.arange(SAMPLES) % 8, learning_rate=0.1, transformer=True)


@MODELS.add
def wav2vec2() -> Example:
    config = configuration("Wav2Vec2", conv_dim=[16, 16], conv_kernel=[10, 3], conv_stride=[5, 2],
                           num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, apply_spec_augment=False,
                           classifier_proj_size=16, num_feat_extract_layers=2, vocab_size=32)
    module = module_of("Wav2Vec2ForSequenceClassification", config, ["input_values"])
    return Example(module, {"input_values": torch.randn(SAMPLES, 200)}, classes(5), learning_rate=0.1, transformer=True)


# ---- full size, for memory; not exported unless named

def big_bert() -> Example:
    config = without_dropout(transformers.BertConfig(num_labels=5))
    module = Logits(transformers.BertForSequenceClassification(config), ["input_ids"])
    return Example(module, {"input_ids": tokens(30000, 16)}, classes(5), transformer=True)


def big_gpt2() -> Example:
    config = without_dropout(transformers.GPT2Config(use_cache=False))
    module = Logits(transformers.GPT2LMHeadModel(config), ["input_ids"])
    return Example(module, {"input_ids": tokens(50000, 16)}, classes(50000, 16), transformer=True)


MODELS.large.update({"big_bert": big_bert, "big_gpt2": big_gpt2})
