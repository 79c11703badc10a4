"""torchvision's models, with random weights, narrow where their constructors allow it."""
from functools import partial

from torch import nn
from torchvision import models
from torchvision.models import efficientnet, mobilenetv3, vgg

from registry import MODELS, Example, classes, images

WITH_BATCH_NORM = ("preserve",)


def classifier(module: nn.Module, size: int = 32, **more) -> Example:
    return Example(module, {"x": images(3, size)}, classes(), **more)


@MODELS.add
def resnet18() -> Example:
    return classifier(models.resnet18(num_classes=10), forms=("preserve", "raw"))


@MODELS.add
def resnet_bottleneck() -> Example:
    module = models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], num_classes=10, width_per_group=16)
    return classifier(module, forms=WITH_BATCH_NORM)


@MODELS.add
def mobilenet_v2() -> Example:
    return classifier(models.mobilenet_v2(num_classes=10, width_mult=0.25, dropout=0.0), forms=WITH_BATCH_NORM)


@MODELS.add
def mobilenet_v3() -> Example:
    settings, last = mobilenetv3._mobilenet_v3_conf("mobilenet_v3_small", width_mult=0.5)
    module = mobilenetv3.MobileNetV3(settings[:6], 64, num_classes=10, dropout=0.0)
    return classifier(module, forms=WITH_BATCH_NORM)


@MODELS.add
def efficientnet_b0() -> Example:
    settings, _ = efficientnet._efficientnet_conf("efficientnet_b0", width_mult=0.25, depth_mult=0.5)
    module = efficientnet.EfficientNet(settings[:5], dropout=0.0, stochastic_depth_prob=0.0, num_classes=10,
                                       last_channel=64)
    return classifier(module, forms=WITH_BATCH_NORM)


@MODELS.add
def densenet() -> Example:
    module = models.DenseNet(growth_rate=8, block_config=(2, 3), num_init_features=16, bn_size=2, num_classes=10)
    return classifier(module, forms=WITH_BATCH_NORM)


@MODELS.add
def shufflenet() -> Example:
    module = models.ShuffleNetV2([2, 2, 2], [8, 16, 32, 64, 64], num_classes=10)
    return classifier(module, forms=("preserve", "raw"))


@MODELS.add
def squeezenet() -> Example:
    return classifier(models.squeezenet1_1(num_classes=10, dropout=0.0))


@MODELS.add
def vgg_bn() -> Example:
    features = vgg.make_layers([8, "M", 16, "M", 32, 32, "M"], batch_norm=True)
    module = vgg.VGG(features, num_classes=10)
    module.avgpool = nn.AdaptiveAvgPool2d(2)
    module.classifier = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 10))
    return classifier(module, forms=WITH_BATCH_NORM)


@MODELS.add
def mnasnet() -> Example:
    return classifier(models.mnasnet0_5(num_classes=10, dropout=0.0), forms=WITH_BATCH_NORM)


@MODELS.add
def regnet() -> Example:
    settings = models.regnet.BlockParams.from_init_params(depth=4, w_0=16, w_a=16.0, w_m=2.0, group_width=8,
                                                          se_ratio=0.25)
    return classifier(models.RegNet(settings, num_classes=10, norm_layer=partial(nn.BatchNorm2d, eps=1e-5)),
                      forms=WITH_BATCH_NORM)


@MODELS.add
def convnext() -> Example:
    block = models.convnext.CNBlockConfig
    module = models.ConvNeXt([block(16, 32, 1), block(32, None, 1)], stochastic_depth_prob=0.0, num_classes=10)
    return classifier(module, learning_rate=0.1)


@MODELS.add
def swin_t() -> Example:
    module = models.SwinTransformer(patch_size=[2, 2], embed_dim=16, depths=[2, 2], num_heads=[2, 4],
                                    window_size=[4, 4], stochastic_depth_prob=0.0, num_classes=10)
    return classifier(module, learning_rate=0.1, transformer=True, forms=("raw",))


@MODELS.add
def swin_v2() -> Example:
    module = models.SwinTransformer(patch_size=[2, 2], embed_dim=16, depths=[2], num_heads=[2], window_size=[4, 4],
                                    stochastic_depth_prob=0.0, num_classes=10,
                                    block=models.swin_transformer.SwinTransformerBlockV2,
                                    downsample_layer=models.swin_transformer.PatchMergingV2)
    return classifier(module, size=16, learning_rate=0.1, transformer=True)


@MODELS.add
def vit_b() -> Example:
    module = models.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=4, hidden_dim=32, mlp_dim=64,
                                      num_classes=10)
    return classifier(module, learning_rate=0.1, transformer=True, forms=("raw",))
