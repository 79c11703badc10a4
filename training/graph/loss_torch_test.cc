// Every loss and its gradient, in float64, against torch 1.13: CrossEntropyLoss, MSELoss, L1Loss,
// HuberLoss, BCEWithLogitsLoss and KLDivLoss(reduction="batchmean") with the arguments that the
// specs name, on predictions ((7 i) mod 11 - 5) / 4 for element i.
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/graph_evaluator.h"
#include "training/graph/autodiff.h"
#include "training/graph/loss.h"

namespace weft {
namespace {

struct Case {
  std::string name;
  LossSpec spec;
  Shape shape;  // of the prediction
  Tensor labels;
  double loss = 0;
  std::vector<double> gradient;
};

class TorchLosses : public ::testing::TestWithParam<Case> {};

TEST_P(TorchLosses, ValueAndGradientAgree) {
  const Case& expected = GetParam();
  Graph graph;
  std::vector<Dim> dims = {Dim::Symbol("N")};
  for (int axis = 1; axis < expected.shape.rank(); ++axis) dims.push_back(expected.shape.dim(axis));
  const ValueId x =
      graph.AddInput("x", {ValueKind::kTensor, DType::kFloat64, SymbolicShape(std::move(dims))});
  graph.AddOutput(x);
  GraphBuilder builder(graph);
  const auto parts = AddLoss(builder, expected.spec);
  ASSERT_TRUE(parts.ok()) << parts.status();
  const ValueId one = builder.Scalar(DType::kFloat64, 1);
  const auto gradients = AddGradients(graph, {{parts->sum, one}}, {x});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  std::vector<double> prediction;
  for (int i = 0; i < static_cast<int>(expected.gradient.size()); ++i) {
    prediction.push_back(((7 * i) % 11 - 5) / 4.0);
  }
  const std::map<ValueId, Tensor> feeds = {{x, Tensor::Of<double>(expected.shape, prediction)},
                                           {*graph.FindValue("labels"), expected.labels}};
  for (const KernelRegistry* kernels : {&KernelRegistry::Reference(), &KernelRegistry::Global()}) {
    const auto values = testing::EvaluateGraph(
        graph, feeds, {parts->sum, parts->weight, gradients->at(x)}, *kernels);
    ASSERT_TRUE(values.ok()) << values.status();
    const double weight = (*ToDoubles((*values)[1]))[0];
    EXPECT_NEAR((*ToDoubles((*values)[0]))[0] / weight, expected.loss, 1e-12);
    const std::vector<double> gradient = *ToDoubles((*values)[2]);
    ASSERT_EQ(gradient.size(), expected.gradient.size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      EXPECT_NEAR(gradient[i] / weight, expected.gradient[i], 1e-12) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, TorchLosses,
    ::testing::Values(
        Case{"Index",
             {},
             {3, 4},
             Tensor::Of<int64_t>({3}, {1, 3, 0}),
             1.7547425252050877,
             {0.015832231551988273, -0.24222513127711925, 0.03351683445857488, 0.19287606526655612,
              0.0781797213916888, 0.02876071221651353, 0.1655064714849795, -0.2724469050931818,
              -0.29879246318494745, 0.1987689837874677, 0.07312302267794911, 0.026900456719530622}},
        Case{"Ignored",
             {.ignore_index = 3},
             {3, 4},
             Tensor::Of<int64_t>({3}, {1, 3, 0}),
             1.78204744099107,
             {0.02374834732798241, -0.36333769691567885, 0.05027525168786233, 0.2893140978998342,
              0.0, 0.0, 0.0, 0.0, -0.4481886947774212, 0.2981534756812016, 0.10968453401692367,
              0.040350685079295935}},
        Case{"Weighted",
             {.class_weights = {0.5, 2, 1, 0.25}},
             {3, 4},
             Tensor::Of<int64_t>({3}, {1, 3, 0}),
             1.5100812179013934,
             {0.03454305065888351, -0.5284911955137147, 0.07312763881870885, 0.4208205060361225,
              0.02132174219773331, 0.007843830604503691, 0.04513812858681259, -0.0743037013890496,
              -0.16297770719178953, 0.10841944570225513, 0.039885285097063156,
              0.014672976392471249}},
        Case{"Smoothed",
             {.label_smoothing = 0.125},
             {3, 4},
             Tensor::Of<int64_t>({3}, {1, 3, 0}),
             1.7469300252050877,
             {0.005415564885321612, -0.21097513127711925, 0.02310016779190823, 0.18245939859988952,
              0.06776305472502214, 0.01834404554984687, 0.15508980481831283, -0.24119690509318187,
              -0.2675424631849475, 0.1883523171208011, 0.06270635601128247, 0.016483790052863965}},
        Case{"AllTogether",
             {.ignore_index = 3, .label_smoothing = 0.125, .class_weights = {0.5, 2, 1, 0.25}},
             {3, 4},
             Tensor::Of<int64_t>({3}, {1, 3, 0}),
             1.4405085091301055,
             {0.029224093821173726, -0.5208606847677953, 0.06259865720874434, 0.4290379337378773,
              0.0, 0.0, 0.0, 0.0, -0.15825873330748066, 0.1073056048335332, 0.036172511970009875,
              0.01478061650393757}},
        Case{"Sequence",
             {.kind = "sequence_cross_entropy", .ignore_index = 0, .label_smoothing = 0.25},
             {3, 2, 4},
             Tensor::Of<int64_t>({3, 2}, {1, 2, 0, 3, 2, 2}),
             1.6203838632460474,
             {-0.0030006610688070355,
              -0.10783507876627155,
              0.0076101006751449355,
              0.1032256391599337,
              0.03440783283501328,
              0.004756427329908117,
              -0.06319611710901231,
              0.024031856944090903,
              0.0,
              0.0,
              0.0,
              0.0,
              0.03440783283501328,
              0.004756427329908117,
              0.0868038828909877,
              -0.12596814305590912,
              0.00822452208903152,
              0.10676139027248065,
              -0.11862618639323054,
              0.0036402740317183742,
              0.07514182335505017,
              0.019741624999102116,
              -0.1506389690128711,
              0.055755520658718805}},
        Case{"Soft",
             {.soft_labels = true},
             {3, 4},
             Tensor::Of<double>({3, 4}, {0.5, 0.25, 0.25, 0.0, 0.0, 1.0, 0.0, 0.0, 0.125, 0.125,
                                         0.5, 0.25}),
             2.202659191871754,
             {-0.1508344351146784, 0.007774868722880746, -0.04981649887475845, 0.19287606526655612,
              0.0781797213916888, -0.30457262111681976, 0.1655064714849795, 0.0608864282401515,
              -0.007125796518280801, 0.15710231712080105, -0.09354364398871755,
              -0.05643287661380271}},
        Case{"SoftWeightedSmoothed",
             {.label_smoothing = 0.125, .class_weights = {0.5, 2, 1, 0.25}, .soft_labels = true},
             {3, 4},
             Tensor::Of<double>({3, 4}, {0.5, 0.25, 0.25, 0.0, 0.0, 1.0, 0.0, 0.0, 0.125, 0.125,
                                         0.5, 0.25}),
             2.5377181448803126,
             {-0.062416457757011636, -0.07627024743901675, -0.050078349143966056,
              0.18876505433999452, 0.1407678652027106, -0.5504650243248953, 0.2986149480591934,
              0.11108221106299121, 0.007055611927871895, 0.08172574349987384, -0.09169608154212305,
              0.002914726114377295}},
        Case{"SoftSequence",
             {.soft_labels = true},
             {3, 2, 4},
             Tensor::Of<double>({3, 2, 4}, {0.5,   0.25,  0.25, 0.0,  0.125, 0.125, 0.5,  0.25,
                                            0.0,   1.0,   0.0,  0.0,  0.0,   1.0,   0.0,  0.0,
                                            0.125, 0.125, 0.5,  0.25, 0.5,   0.25,  0.25, 0.0}),
             1.660444840276565,
             {-0.0754172175573392,    0.003887434361440373,   -0.024908249437379223,
              0.09643803263327806,    0.018256527362511064,   -0.006452977225076569,
              -0.0005800975908435886, -0.011223452546590915,  0.01727043507419293,
              -0.0672821747729328,    0.036561511338974555,   0.013450228359765311,
              0.0390898606958444,     -0.15228631055840988,   0.08275323574248974,
              0.03044321412007575,    -0.0035628982591404007, 0.07855115856040053,
              -0.046771821994358774,  -0.028216438306901355,  -0.010298480537458196,
              -0.01479864583408157,   -0.03178247417739259,   0.05687960054893233}},
        Case{"Mse",
             {.kind = "mse"},
             {3, 4},
             Tensor::Of<double>({3, 4},
                                {0.25, -2.0, 1.0, 3.0, 0.0, 1.0, -1.0, 0.5, 2.0, 0.75, -0.25, 1.0}),
             2.9375,
             {-0.25, 0.41666666666666663, -0.25, -0.29166666666666663, 0.041666666666666664,
              -0.29166666666666663, 0.3333333333333333, -0.08333333333333333, -0.5, 0.0, 0.0,
              -0.375}},
        Case{"Mae",
             {.kind = "mae"},
             {3, 4},
             Tensor::Of<double>({3, 4},
                                {0.25, -2.0, 1.0, 3.0, 0.0, 1.0, -1.0, 0.5, 2.0, 0.75, -0.25, 1.0}),
             1.4166666666666667,
             {-0.08333333333333333, 0.08333333333333333, -0.08333333333333333, -0.08333333333333333,
              0.08333333333333333, -0.08333333333333333, 0.08333333333333333, -0.08333333333333333,
              -0.08333333333333333, 0.0, 0.0, -0.08333333333333333}},
        Case{"Huber",
             {.kind = "huber", .huber_delta = 0.75},
             {3, 4},
             Tensor::Of<double>({3, 4},
                                {0.25, -2.0, 1.0, 3.0, 0.0, 1.0, -1.0, 0.5, 2.0, 0.75, -0.25, 1.0}),
             0.8411458333333334,
             {-0.0625, 0.0625, -0.0625, -0.0625, 0.020833333333333332, -0.0625, 0.0625,
              -0.041666666666666664, -0.0625, 0.0, 0.0, -0.0625}},
        Case{"Bce",
             {.kind = "bce_with_logits"},
             {3, 4},
             Tensor::Of<double>({3, 4},
                                {0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.5, 1.0, 0.0, 0.0, 1.0, 1.0}),
             0.7874360516650175,
             {0.01855834490210907, -0.03146172239984545, -0.05187161093348788, 0.06477498843122426,
              -0.03648529159285016, 0.026735108402050584, 0.019254881552500408,
              -0.041666666666666664, 0.02241178511416626, 0.05659822493128275,
              -0.046848041740483175, -0.06477498843122427}},
        Case{"KlDiv",
             {.kind = "kl_div"},
             {3, 4},
             Tensor::Of<double>({3, 4}, {0.5, 0.25, 0.25, 0.0, 0.0, 1.0, 0.0, 0.0, 0.125, 0.125,
                                         0.5, 0.25}),
             -0.13632611227327404,
             {-0.16666666666666666, -0.08333333333333333, -0.08333333333333333, -0.0, -0.0,
              -0.3333333333333333, -0.0, -0.0, -0.041666666666666664, -0.041666666666666664,
              -0.16666666666666666, -0.08333333333333333}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft
