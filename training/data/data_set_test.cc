#include "training/data/data_set.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"
#include "training/data/batch_reader.h"
#include "training/data/data_file.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

FeedInput Input(const std::string& name, DType dtype, Shape sample_shape) {
  return {name, InputRole::kData, dtype, std::move(sample_shape)};
}

class DataSetTest : public ::testing::Test {
 protected:
  // A file of `tensor` for the graph input of the same name.
  void Add(const std::string& input, const Tensor& tensor) {
    const std::string path = "/" + input + ".npy";
    auto bytes = ToNpy(tensor);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    ASSERT_TRUE(files_.WriteFileAtomically(path, *bytes).ok());
    spec_.files.push_back({input, path, 0});
  }

  // Samples 0, 1, ..., count - 1 of one int64 each.
  void AddCounting(int64_t count) {
    std::vector<int64_t> values(count);
    for (int64_t i = 0; i < count; ++i) values[i] = i;
    Add("y", Tensor::Of<int64_t>({count}, values));
  }

  void Open() {
    auto data = DataSet::Open(files_, spec_);
    ASSERT_TRUE(data.ok()) << data.status();
    data_ = *std::move(data);
    source_ = NewDataSetSource(data_);
  }

  template <typename T>
  std::vector<T> Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count) {
    std::vector<T> values(count * input.sample_shape.num_elements());
    const absl::Status status = source_->Fill(step, input, first, count, values.data());
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

  // The samples of one epoch in order, read in pieces of `piece` samples.
  std::vector<int64_t> Epoch(int64_t epoch, int64_t piece) {
    std::vector<int64_t> order;
    const FeedInput input = Input("y", DType::kInt64, {});
    for (int64_t i = 0; i < data_->steps_per_epoch(); ++i) {
      const int64_t step = epoch * data_->steps_per_epoch() + i;
      const int64_t batch = data_->batch_of(step);
      for (int64_t first = 0; first < batch; first += piece) {
        const auto part = Fill<int64_t>(step, input, first, std::min(piece, batch - first));
        order.insert(order.end(), part.begin(), part.end());
      }
    }
    return order;
  }

  testing::FakeFileSystem files_;
  DataSpec spec_;
  std::shared_ptr<const DataSet> data_;
  std::unique_ptr<InputSource> source_;
};

std::vector<int64_t> Range(int64_t count) {
  std::vector<int64_t> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = i;
  return values;
}

TEST_F(DataSetTest, WithoutShufflingEveryEpochIsTheFilesOrder) {
  AddCounting(10);
  spec_.batch = 4;
  Open();
  EXPECT_EQ(Epoch(0, 4), Range(10));
  EXPECT_EQ(Epoch(1, 3), Range(10));
}

TEST_F(DataSetTest, TheLastBatchIsShort) {
  AddCounting(10);
  spec_.batch = 4;
  Open();
  EXPECT_EQ(data_->samples(), 10);
  EXPECT_EQ(data_->steps_per_epoch(), 3);
  EXPECT_EQ(data_->last_batch(), 2);
  std::vector<int64_t> batches;
  for (int64_t step = 0; step < 7; ++step) batches.push_back(data_->batch_of(step));
  EXPECT_THAT(batches, ElementsAre(4, 4, 2, 4, 4, 2, 4));
  EXPECT_THAT(Fill<int64_t>(5, Input("y", DType::kInt64, {}), 0, 2), ElementsAre(8, 9));
}

TEST_F(DataSetTest, ABatchThatDividesTheSamplesHasNoShortOne) {
  AddCounting(8);
  spec_.batch = 4;
  Open();
  EXPECT_EQ(data_->steps_per_epoch(), 2);
  EXPECT_EQ(data_->last_batch(), 4);
}

TEST_F(DataSetTest, ABatchLargerThanTheDataIsOneShortBatch) {
  AddCounting(3);
  spec_.batch = 100;
  Open();
  EXPECT_EQ(data_->steps_per_epoch(), 1);
  EXPECT_EQ(data_->batch_of(5), 3);
  EXPECT_EQ(Epoch(0, 100), Range(3));
}

TEST_F(DataSetTest, SamplesBeyondTheBatchAreNotRead) {
  AddCounting(10);
  spec_.batch = 4;
  Open();
  int64_t values[4];
  const absl::Status status = source_->Fill(2, Input("y", DType::kInt64, {}), 0, 4, values);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status), HasSubstr("samples 8 to 12"));
}

TEST_F(DataSetTest, ShufflingGivesEverySampleOncePerEpochInAnotherOrder) {
  AddCounting(100);
  spec_.batch = 32;
  spec_.shuffle = true;
  Open();
  const std::vector<int64_t> first = Epoch(0, 32);
  const std::vector<int64_t> second = Epoch(1, 32);
  EXPECT_THAT(first, UnorderedElementsAreArray(Range(100)));
  EXPECT_THAT(second, UnorderedElementsAreArray(Range(100)));
  EXPECT_NE(first, Range(100));
  EXPECT_NE(first, second);
  EXPECT_EQ(Epoch(0, 32), first);  // going back is going back
}

TEST_F(DataSetTest, TheShuffledOrderDependsOnTheSeedOnly) {
  AddCounting(50);
  spec_.shuffle = true;
  spec_.seed = 7;
  std::vector<std::vector<int64_t>> orders;
  for (const int64_t batch : {1, 7, 50}) {
    for (const int64_t piece : {1, 5, 50}) {
      spec_.batch = batch;
      Open();
      orders.push_back(Epoch(3, piece));
    }
  }
  for (const auto& order : orders) EXPECT_EQ(order, orders[0]);
  spec_.seed = 8;
  Open();
  EXPECT_NE(Epoch(3, 50), orders[0]);
}

TEST_F(DataSetTest, AllInputsAreShuffledAlike) {
  AddCounting(20);
  std::vector<float> values;
  for (int i = 0; i < 20; ++i) values.insert(values.end(), {i + 0.25f, i + 0.5f});
  Add("x", Tensor::Of<float>({20, 2}, values));
  spec_.shuffle = true;
  spec_.batch = 20;
  Open();
  const auto labels = Fill<int64_t>(1, Input("y", DType::kInt64, {}), 0, 20);
  const auto rows = Fill<float>(1, Input("x", DType::kFloat32, {2}), 0, 20);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(rows[2 * i], static_cast<float>(labels[i]) + 0.25f);
    EXPECT_EQ(rows[2 * i + 1], static_cast<float>(labels[i]) + 0.5f);
  }
}

TEST_F(DataSetTest, BytesAreScaledToOneForFloatingInputsOnly) {
  Add("x", Tensor::Of<uint8_t>({1, 3}, {0, 51, 255}));
  Open();
  EXPECT_THAT(Fill<float>(0, Input("x", DType::kFloat32, {3}), 0, 1), ElementsAre(0, 0.2f, 1));
  EXPECT_THAT(Fill<double>(0, Input("x", DType::kFloat64, {3}), 0, 1), ElementsAre(0, 0.2, 1));
  EXPECT_THAT(Fill<int64_t>(0, Input("x", DType::kInt64, {3}), 0, 1), ElementsAre(0, 51, 255));
}

TEST_F(DataSetTest, ScalingCanBeTurnedOff) {
  Add("x", Tensor::Of<uint8_t>({1, 3}, {0, 51, 255}));
  spec_.scale_bytes = false;
  Open();
  EXPECT_THAT(Fill<float>(0, Input("x", DType::kFloat32, {3}), 0, 1), ElementsAre(0, 51, 255));
}

// Yes and no for a loss of numbers: 1 must not become 1 / 255.
TEST_F(DataSetTest, BytesOfLabelsAreScaledOnlyWhereTheyAreImages) {
  Add("labels", Tensor::Of<uint8_t>({3, 2}, {0, 1, 1, 0, 7, 255}));
  Add("image", Tensor::Of<uint8_t>({3, 1, 1}, {0, 51, 255}));
  for (DataSpec::File& file : spec_.files) file.is_labels = true;
  Open();
  EXPECT_THAT(Fill<float>(0, Input("labels", DType::kFloat32, {2}), 0, 3),
              ElementsAre(0, 1, 1, 0, 7, 255));
  EXPECT_THAT(Fill<float>(0, Input("image", DType::kFloat32, {1, 1}), 0, 3),
              ElementsAre(0, 51 / 255.0f, 1));
}

TEST_F(DataSetTest, OtherIntegersAreConvertedWithoutScaling) {
  Add("x", Tensor::Of<int32_t>({2}, {-3, 1 << 20}));
  spec_.batch = 2;
  Open();
  EXPECT_THAT(Fill<float>(0, Input("x", DType::kFloat32, {}), 0, 2), ElementsAre(-3, 1 << 20));
  EXPECT_THAT(Fill<int64_t>(0, Input("x", DType::kInt64, {}), 0, 2), ElementsAre(-3, 1 << 20));
}

TEST_F(DataSetTest, ASampleMayHaveAnotherShapeOfTheSameSize) {
  Add("x", Tensor::Of<float>({1, 2, 2}, {1, 2, 3, 4}));
  Open();
  EXPECT_TRUE(CheckInputFits(*data_, Input("x", DType::kFloat32, {4})).ok());
  EXPECT_TRUE(CheckInputFits(*data_, Input("x", DType::kFloat32, {1, 4, 1})).ok());
  EXPECT_THAT(Fill<float>(0, Input("x", DType::kFloat32, {4}), 0, 1), ElementsAre(1, 2, 3, 4));
}

TEST_F(DataSetTest, ASampleOfAnotherSizeDoesNotFit) {
  Add("x", Tensor::Of<float>({1, 28, 28}, std::vector<float>(784)));
  Open();
  const absl::Status status = CheckInputFits(*data_, Input("x", DType::kFloat32, {3, 32, 32}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status),
            "a sample of input 'x' has 3072 elements ([3,32,32]), a sample of the data has 784 "
            "(file shape [1,28,28])");
}

// A step's input that nobody checked before must not read beyond the file's samples.
TEST_F(DataSetTest, FillingChecksTheSampleSizeItself) {
  Add("x", Tensor::Of<float>({2, 2}, {1, 2, 3, 4}));
  spec_.batch = 2;
  Open();
  std::vector<float> target(6);
  const absl::Status status =
      source_->Fill(0, Input("x", DType::kFloat32, {3}), 0, 2, target.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("has 3 elements"));
}

TEST_F(DataSetTest, AnInputWithoutAFileSaysHowToGiveOne) {
  AddCounting(1);
  Open();
  const absl::Status status = CheckInputFits(*data_, Input("image", DType::kFloat32, {4}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status),
            "input 'image' of the graph has no data; give it one: --data image=FILE");
}

TEST_F(DataSetTest, FloatsCannotStandForIndices) {
  Add("y", Tensor::Of<float>({1}, {2.5f}));
  Open();
  const absl::Status status = CheckInputFits(*data_, Input("y", DType::kInt64, {}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), "input 'y' is int64, the data is float32, which cannot stand for it");
}

TEST_F(DataSetTest, IntegersThatDoNotFitTheInputAreRefused) {
  Add("y", Tensor::Of<int64_t>({2}, {7, int64_t{1} << 32}));
  Open();
  const absl::Status status = CheckInputFits(*data_, Input("y", DType::kInt32, {}));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("4294967296"));
}

TEST_F(DataSetTest, FilesOfDifferentCountsAreNamed) {
  AddCounting(3);
  Add("x", Tensor::Of<float>({2, 1}, {1, 2}));
  const auto data = DataSet::Open(files_, spec_);
  EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(data.status()),
            "data file '/x.npy' has 2 samples, '/y.npy' has 3; they must agree");
}

TEST_F(DataSetTest, AFileWithoutSamplesIsRefused) {
  Add("x", Tensor::Of<float>({0, 4}, std::vector<float>()));
  EXPECT_THAT(Message(DataSet::Open(files_, spec_).status()), HasSubstr("has no samples"));
  spec_.files.clear();
  Add("x", Tensor::Scalar<float>(1));
  EXPECT_THAT(Message(DataSet::Open(files_, spec_).status()),
              AllOf(HasSubstr("'/x.npy' has no samples"), HasSubstr("[]")));
}

TEST_F(DataSetTest, TwoFilesForOneInputAreRefused) {
  AddCounting(3);
  spec_.files.push_back(spec_.files[0]);
  EXPECT_EQ(Message(DataSet::Open(files_, spec_).status()), "input 'y' was given two data files");
}

TEST_F(DataSetTest, NoFilesOrNoBatchAreRefused) {
  EXPECT_EQ(DataSet::Open(files_, spec_).status().code(), absl::StatusCode::kInvalidArgument);
  AddCounting(3);
  spec_.batch = 0;
  EXPECT_THAT(Message(DataSet::Open(files_, spec_).status()), HasSubstr("batch is 0"));
}

TEST_F(DataSetTest, AFileThatIsNotTheCoordinatorsIsRefused) {
  AddCounting(3);
  Open();
  spec_ = data_->spec();
  EXPECT_NE(spec_.files[0].checksum, 0u);
  EXPECT_TRUE(DataSet::Open(files_, spec_).ok());
  const auto other = ToNpy(Tensor::Of<int64_t>({3}, {0, 1, 3}));
  ASSERT_TRUE(files_.WriteFileAtomically("/y.npy", *other).ok());
  const auto data = DataSet::Open(files_, spec_);
  EXPECT_EQ(data.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(data.status()),
              AllOf(HasSubstr("'/y.npy'"), HasSubstr("differs from the one that the coordinator")));
}

TEST_F(DataSetTest, DroppingTheLastBatchLeavesWholeOnes) {
  AddCounting(10);
  spec_.batch = 4;
  spec_.drop_last = true;
  Open();
  EXPECT_EQ(data_->steps_per_epoch(), 2);
  EXPECT_EQ(data_->last_batch(), 4);
  EXPECT_EQ(Epoch(1, 4), Range(8));
  spec_.batch = 11;
  EXPECT_THAT(Message(DataSet::Open(files_, spec_).status()),
              HasSubstr("10 samples, fewer than a batch of 11"));
}

TEST_F(DataSetTest, TheSplitTakesTheSamplesApartWhateverSeedAndBatch) {
  AddCounting(1000);
  spec_.validation_split = 0.25;
  std::vector<std::vector<int64_t>> held;
  for (const uint64_t seed : {0, 9}) {
    spec_.seed = seed;
    spec_.batch = 10 + static_cast<int64_t>(seed);
    spec_.shuffle = true;
    spec_.share = DataShare::kTraining;
    Open();
    EXPECT_EQ(data_->samples(), 750);
    std::vector<int64_t> all = Epoch(2, 5);
    EXPECT_EQ(all.size(), 750u);
    spec_.shuffle = false;
    spec_.share = DataShare::kValidation;
    Open();
    held.push_back(Epoch(0, 7));
    EXPECT_EQ(held.back().size(), 250u);
    EXPECT_TRUE(std::is_sorted(held.back().begin(), held.back().end()));
    all.insert(all.end(), held.back().begin(), held.back().end());
    EXPECT_THAT(all, UnorderedElementsAreArray(Range(1000)));
  }
  EXPECT_EQ(held[0], held[1]);
  // Not the end of the file, and not every fourth.
  EXPECT_NEAR(static_cast<double>(held[0][124]), 500, 100);
  EXPECT_NE(held[0][1] - held[0][0], held[0][2] - held[0][1]);
}

TEST_F(DataSetTest, ASplitThatLeavesNothingIsRefused) {
  AddCounting(4);
  spec_.validation_split = 0.01;
  spec_.share = DataShare::kTraining;
  EXPECT_THAT(Message(DataSet::Open(files_, spec_).status()),
              HasSubstr("--validation-split 0.01 of 4 samples leaves 4 to train and 0"));
}

// Windows that overlap: none of the training samples shares a token with a validation sample.
TEST_F(DataSetTest, TheEndOfASequenceIsHeldOut) {
  std::string text;
  for (int i = 0; i < 100; ++i) text.push_back(static_cast<char>(i));
  ASSERT_TRUE(files_.WriteFileAtomically("/t.txt", text).ok());
  spec_.files.push_back({"x", "/t.txt", 0});
  spec_.sequence_length = 6;
  spec_.stride = 2;
  spec_.validation_split = 0.25;
  spec_.share = DataShare::kTraining;
  Open();
  // 47 windows, 12 of them held out, 2 reach into these.
  EXPECT_EQ(data_->samples(), 33);
  const FeedInput input = Input("x", DType::kInt64, {6});
  const auto last = Fill<int64_t>(32, input, 0, 1);
  EXPECT_THAT(last, ElementsAre(64, 65, 66, 67, 68, 69));
  spec_.share = DataShare::kValidation;
  Open();
  EXPECT_EQ(data_->samples(), 12);
  EXPECT_THAT(Fill<int64_t>(0, input, 0, 1), ElementsAre(70, 71, 72, 73, 74, 75));
}

TEST_F(DataSetTest, BytesOfATextAreNotScaled) {
  ASSERT_TRUE(files_.WriteFileAtomically("/t.txt", "AB").ok());
  spec_.files.push_back({"x", "/t.txt", 0});
  spec_.sequence_length = 1;
  Open();
  EXPECT_THAT(Fill<float>(0, Input("x", DType::kFloat32, {1}), 0, 1), ElementsAre(65));
}

TEST_F(DataSetTest, SamplesAreNormalizedAfterScaling) {
  Add("x", Tensor::Of<uint8_t>({1, 3}, {0, 51, 255}));
  spec_.files[0].normalization = {false, {0.2}, {0.5}};
  Open();
  EXPECT_THAT(Fill<float>(0, Input("x", DType::kFloat32, {3}), 0, 1), ElementsAre(-0.4f, 0, 1.6f));
  EXPECT_THAT(Fill<double>(0, Input("x", DType::kFloat64, {3}), 0, 1), ElementsAre(-0.4f, 0, 1.6f));
  const absl::Status status = CheckInputFits(*data_, Input("x", DType::kInt32, {3}));
  EXPECT_EQ(Message(status),
            "input 'x' is int32; only floating inputs are normalized or augmented");
}

TEST_F(DataSetTest, AutomaticNormalizationIsThatOfTheTrainingSamples) {
  std::vector<double> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 7);
  Add("x", Tensor::Of<double>({1000, 1}, values));
  spec_.files[0].normalization.automatic = true;
  spec_.validation_split = 0.5;
  spec_.share = DataShare::kTraining;
  Open();
  const std::vector<double> trained = data_->spec().files[0].normalization.mean;
  double sum = 0;
  for (int64_t i = 0; i < data_->samples(); ++i) sum += values[data_->RowOf(i)];
  ASSERT_EQ(trained.size(), 1u);
  EXPECT_NEAR(trained[0], sum / 500, 1e-12);
  spec_.share = DataShare::kValidation;
  Open();
  EXPECT_EQ(data_->spec().files[0].normalization.mean, trained);
}

TEST_F(DataSetTest, WhatASampleBecomesDependsOnSeedEpochAndSampleOnly) {
  std::vector<uint8_t> pixels(50 * 6 * 6);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i % 251);
  Add("x", Tensor::Of<uint8_t>({50, 6, 6}, pixels));
  spec_.files[0].augmentations = ParseAugmentations("flip,crop:2,brightness:0.2").value();
  spec_.shuffle = true;
  const FeedInput input = Input("x", DType::kFloat32, {1, 6, 6});
  const auto epoch = [&](int64_t number, int64_t piece) {
    std::vector<float> all;
    for (int64_t i = 0; i < data_->steps_per_epoch(); ++i) {
      const int64_t step = number * data_->steps_per_epoch() + i;
      for (int64_t first = 0; first < data_->batch_of(step); first += piece) {
        const auto part =
            Fill<float>(step, input, first, std::min(piece, data_->batch_of(step) - first));
        all.insert(all.end(), part.begin(), part.end());
      }
    }
    return all;
  };
  std::vector<std::vector<float>> runs;
  for (const int64_t batch : {50, 16}) {
    for (const int prefetch : {0, 3}) {
      spec_.batch = batch;
      spec_.prefetch = prefetch;
      Open();
      const auto zero = epoch(0, 4);
      const auto one = epoch(1, 5);
      EXPECT_NE(zero, one);
      EXPECT_EQ(epoch(0, 50), zero);
      runs.push_back(one);
    }
  }
  for (const auto& run : runs) EXPECT_EQ(run, runs[0]);
  spec_.seed = 1;
  Open();
  EXPECT_NE(epoch(1, 5), runs[0]);
}

TEST_F(DataSetTest, ReadingAheadIsUsualWhereReadingIsWork) {
  AddCounting(8);
  spec_.batch = 8;
  Open();
  EXPECT_EQ(source_->max_bytes(), 8 * 8);
  ASSERT_TRUE(files_.CreateDirectories("/p").ok());
  spec_.files[0].normalization = {false, {1}, {2}};
  Open();
  // Two steps and the one in use, of eight int64 each.
  EXPECT_EQ(source_->max_bytes(), 8 * 8 + 3 * 8 * 8);
}

TEST_F(DataSetTest, IntegersReadFromTheFileAreCheckedWhenTheyAreRead) {
  ASSERT_TRUE(files_.WriteFileAtomically("/t.bin", std::string("\1\0\0\2\3\0", 6)).ok());
  spec_.files.push_back({"x", "/t.bin", 0});
  spec_.files[0].format = "tokens16";
  spec_.sequence_length = 1;
  Open();
  const FeedInput input = Input("x", DType::kInt8, {1});
  EXPECT_THAT(Fill<int8_t>(0, input, 0, 1), ElementsAre(1));
  int8_t value = 0;
  const absl::Status status = source_->Fill(1, input, 0, 1, &value);
  EXPECT_EQ(Message(status),
            "data file '/t.bin': element 0 of sample 1 is beyond int8, which the input holds");
}

TEST_F(DataSetTest, SixteenBitFloatsAreConverted) {
  Add("x", Tensor::Of<float>({1, 2}, {1.5f, -2}));
  Open();
  const auto halves = Fill<uint16_t>(0, Input("x", DType::kFloat16, {2}), 0, 1);
  EXPECT_THAT(halves, ElementsAre(0x3e00, 0xc000));
}

class PaddedDataSetTest : public DataSetTest {
 protected:
  // Cells of the columns a and b.
  void AddLists(const std::string& text) {
    ASSERT_TRUE(files_.WriteFileAtomically("/l.csv", "a,b\n" + text).ok());
    for (const std::string part : {"a", "b"}) {
      DataSpec::File& file = spec_.files.emplace_back();
      file.input = part;
      file.path = "/l.csv";
      file.part = part;
      file.padding = {{2, 4, 8}, -1};
    }
  }

  // 100 samples, of which sample i has i % 8 + 1 elements; they count up from 10 i.
  void AddManyLists() {
    std::string text;
    for (int i = 0; i < 100; ++i) {
      for (int k = 0; k <= i % 8; ++k) text += std::to_string(10 * i + k) + " ";
      text += ",1\n";
    }
    AddLists(text);
  }

  std::string OpenError() {
    const auto data = DataSet::Open(files_, spec_);
    return data.ok() ? "" : Message(data.status());
  }
};

TEST_F(PaddedDataSetTest, AStepHasTheLeastLengthThatItsSamplesFit) {
  AddLists("1,1\n2,2 2\n3 3 3,3\n4,4 4 4 4 4\n5,\n");
  spec_.batch = 2;
  Open();
  std::vector<int64_t> lengths;
  for (int64_t step = 0; step < 6; ++step) lengths.push_back(data_->length_of(step));
  EXPECT_THAT(lengths, ElementsAre(2, 8, 2, 2, 8, 2));
  EXPECT_THAT(Fill<int64_t>(0, Input("b", DType::kInt64, {2}), 0, 2), ElementsAre(1, -1, 2, 2));
  EXPECT_THAT(Fill<int64_t>(1, Input("a", DType::kInt64, {8}), 0, 1),
              ElementsAre(3, 3, 3, -1, -1, -1, -1, -1));
  EXPECT_THAT(Fill<int64_t>(2, Input("b", DType::kInt64, {2}), 0, 1), ElementsAre(-1, -1));
}

TEST_F(PaddedDataSetTest, AnotherLengthThanTheStepsIsRefused) {
  AddLists("1,1\n2,2\n");
  spec_.batch = 2;
  Open();
  int64_t values[16];
  const absl::Status four = source_->Fill(0, Input("a", DType::kInt64, {4}), 0, 2, values);
  EXPECT_THAT(Message(four), HasSubstr("step 0 is padded to 2 elements, 4 were asked for"));
  const absl::Status three = source_->Fill(0, Input("a", DType::kInt64, {3}), 0, 2, values);
  EXPECT_THAT(Message(three), HasSubstr("has 3 elements"));
}

TEST_F(PaddedDataSetTest, ShapesAreThoseThatCanOccur) {
  // None needs 8; four fit 2.
  AddLists("1,1\n2,2 2\n3 3 3,3\n4,4\n5,5\n");
  spec_.batch = 2;
  Open();
  EXPECT_THAT(data_->shapes(),
              ElementsAre(BatchShape{2, 4}, BatchShape{1, 4}, BatchShape{2, 2}, BatchShape{1, 2}));
  EXPECT_EQ(data_->SampleShape("a", 0), (Shape{4}));
  EXPECT_EQ(data_->SampleShape("a", 2), (Shape{2}));
}

TEST_F(PaddedDataSetTest, EveryShapeOfAShuffledStepIsAmongThem) {
  AddManyLists();
  spec_.batch = 3;
  spec_.shuffle = true;
  Open();
  const std::vector<BatchShape> shapes = data_->shapes();
  EXPECT_EQ(shapes.front(), (BatchShape{3, 8}));
  for (int64_t step = 0; step < 200; ++step) {
    EXPECT_NE(std::find(shapes.begin(), shapes.end(), data_->shape_of(step)), shapes.end()) << step;
  }
}

TEST_F(PaddedDataSetTest, GroupingKeepsEverySampleAndFillsBatchesWithLikeLengths) {
  AddManyLists();
  spec_.batch = 8;
  spec_.shuffle = true;
  Open();
  const auto padded = [this] {
    int64_t elements = 0;
    for (int64_t step = 0; step < data_->steps_per_epoch(); ++step) {
      elements += data_->batch_of(step) * data_->length_of(step);
    }
    return elements;
  };
  const int64_t apart = padded();
  spec_.group_lengths = true;
  Open();
  EXPECT_LT(padded(), apart * 3 / 4);
  std::vector<int64_t> seen;
  for (int64_t step = 3 * data_->steps_per_epoch(); step < 4 * data_->steps_per_epoch(); ++step) {
    const int64_t length = data_->length_of(step), batch = data_->batch_of(step);
    const auto rows = Fill<int64_t>(step, Input("a", DType::kInt64, {length}), 0, batch);
    for (int64_t i = 0; i < batch; ++i) seen.push_back(rows[i * length] / 10);
  }
  EXPECT_THAT(seen, UnorderedElementsAreArray(Range(100)));
  EXPECT_NE(data_->MakeOrder(0), data_->MakeOrder(1));
}

TEST_F(PaddedDataSetTest, AMaskFollowsItsInput) {
  AddLists("1 2,1\n3,2\n");
  spec_.files.front().padding = {{4}, 0};
  spec_.files.pop_back();
  DataSpec::File& mask = spec_.files.emplace_back();
  mask.input = "mask";
  mask.mask_of = "a";
  spec_.batch = 2;
  Open();
  EXPECT_THAT(Fill<float>(0, Input("mask", DType::kFloat32, {4}), 0, 2),
              ElementsAre(1, 1, 0, 0, 1, 0, 0, 0));
  mask.mask_of = "z";
  EXPECT_EQ(OpenError(), "input 'mask' is the mask of input 'z', which has no data");
}

TEST_F(PaddedDataSetTest, LengthsMustAgree) {
  AddLists("1,1\n2,2\n");
  spec_.files.back().padding.lengths = {4, 8};
  EXPECT_THAT(OpenError(),
              HasSubstr("inputs 'a' and 'b' are padded to different lists of lengths"));
  spec_.files.back().padding.lengths = {8};
  EXPECT_EQ(OpenError(), "");
  spec_.files.front().padding.lengths = {8};
  spec_.group_lengths = true;
  EXPECT_THAT(OpenError(), HasSubstr("--group-lengths is for samples that are padded"));
}

TEST(DataSpecTest, JsonKeepsEverything) {
  DataSpec spec;
  spec.files = {{"x", "/data/\"quoted\" \xc3\xa4.npy", std::numeric_limits<uint64_t>::max()},
                {"y", "labels.gz", 0}};
  spec.batch = 128;
  spec.shuffle = true;
  spec.seed = std::numeric_limits<uint64_t>::max();
  spec.scale_bytes = false;
  const auto back = DataSpec::FromJson(spec.ToJson());
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->files.size(), 2u);
  EXPECT_EQ(back->files[0].input, "x");
  EXPECT_EQ(back->files[0].path, spec.files[0].path);
  EXPECT_EQ(back->files[0].checksum, spec.files[0].checksum);
  EXPECT_EQ(back->files[1].path, "labels.gz");
  EXPECT_EQ(back->batch, 128);
  EXPECT_TRUE(back->shuffle);
  EXPECT_EQ(back->seed, spec.seed);
  EXPECT_FALSE(back->scale_bytes);
  EXPECT_EQ(back->ToJson(), spec.ToJson());
}

TEST(DataSpecTest, HostileJsonIsAnError) {
  const std::string rest = R"("shuffle":true,"seed":1,"scale_bytes":true})";
  for (const std::string& text : std::vector<std::string>{
           "",
           "x",
           "[]",
           "{}",
           "null",
           "3",
           "{\"files\":[]}",
           "{\"files\":{},\"batch\":1," + rest,
           "{\"files\":[],\"batch\":0," + rest,
           "{\"files\":[],\"batch\":-5," + rest,
           "{\"files\":[],\"batch\":1.5," + rest,
           "{\"files\":[],\"batch\":\"1\"," + rest,
           "{\"files\":[],\"batch\":18446744073709551615," + rest,
           "{\"files\":[1],\"batch\":1," + rest,
           "{\"files\":[{}],\"batch\":1," + rest,
           "{\"files\":[{\"input\":\"x\"}],\"batch\":1," + rest,
           "{\"files\":[{\"input\":1,\"path\":\"p\",\"checksum\":0}],\"batch\":1," + rest,
           "{\"files\":[{\"input\":\"x\",\"path\":\"p\",\"checksum\":-1}],\"batch\":1," + rest,
           R"({"files":[],"batch":1,"shuffle":1,"seed":1,"scale_bytes":true})",
           R"({"files":[],"batch":1,"shuffle":true,"seed":-1,"scale_bytes":true})",
           R"({"files":[],"batch":1,"shuffle":true,"seed":1})",
           std::string(100000, '[')}) {
    const auto spec = DataSpec::FromJson(text);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text.substr(0, 80);
    EXPECT_THAT(Message(spec.status()), HasSubstr("the data description is damaged"));
  }
  EXPECT_TRUE(DataSpec::FromJson("{\"files\":[],\"batch\":1," + rest).ok());
}

}  // namespace
}  // namespace weft
