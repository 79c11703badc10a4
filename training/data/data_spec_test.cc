#include "training/data/data_spec.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
std::string Message(const absl::StatusOr<T>& result) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(result.status().message());
}

TEST(ParseAugmentationsTest, KeepsTheOrder) {
  const auto parsed = ParseAugmentations("crop:4,flip,brightness:0.25,cutout:8");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->size(), 4u);
  EXPECT_EQ((*parsed)[0].kind, Augmentation::Kind::kCrop);
  EXPECT_EQ((*parsed)[0].amount, 4);
  EXPECT_EQ((*parsed)[1].kind, Augmentation::Kind::kFlip);
  EXPECT_EQ((*parsed)[2].kind, Augmentation::Kind::kBrightness);
  EXPECT_EQ((*parsed)[2].amount, 0.25);
  EXPECT_EQ((*parsed)[3].kind, Augmentation::Kind::kCutout);
  EXPECT_EQ((*parsed)[3].amount, 8);
}

TEST(ParseAugmentationsTest, SaysWhatIsWrong) {
  EXPECT_EQ(Message(ParseAugmentations("flip,twist:3")),
            "'twist:3' is unknown; there are flip, crop:N, brightness:X and cutout:N");
  EXPECT_EQ(Message(ParseAugmentations("flip:2")), "'flip' takes no amount");
  EXPECT_THAT(Message(ParseAugmentations("crop")), HasSubstr("expected crop:N with a whole"));
  EXPECT_THAT(Message(ParseAugmentations("crop:1.5")), HasSubstr("'crop:1.5'"));
  EXPECT_THAT(Message(ParseAugmentations("crop:0")), HasSubstr("from 1 to 4096"));
  EXPECT_THAT(Message(ParseAugmentations("brightness:1.5")), HasSubstr("from 0 to 1"));
  EXPECT_THAT(Message(ParseAugmentations("brightness:nan")), HasSubstr("'brightness:nan'"));
  EXPECT_THAT(Message(ParseAugmentations("")), HasSubstr("'' is unknown"));
}

TEST(ParseNormalizationTest, TakesOnePairOrOneForEachChannel) {
  const auto one = ParseNormalization("0.1307/0.3081");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(one->mean, ElementsAre(0.1307));
  EXPECT_THAT(one->deviation, ElementsAre(0.3081));
  const auto three = ParseNormalization("0.5,0.4,-3/0.25,0.5,1e2");
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_THAT(three->mean, ElementsAre(0.5, 0.4, -3));
  EXPECT_THAT(three->deviation, ElementsAre(0.25, 0.5, 100));
  EXPECT_FALSE(three->automatic);
  EXPECT_TRUE(ParseNormalization("auto")->automatic);
}

TEST(ParseNormalizationTest, SaysWhatIsWrong) {
  EXPECT_THAT(Message(ParseNormalization("0.5")), HasSubstr("expected auto or MEAN/DEVIATION"));
  EXPECT_THAT(Message(ParseNormalization("1,2/3")), HasSubstr("2 means and 1 deviations"));
  EXPECT_THAT(Message(ParseNormalization("1/0")), HasSubstr("expected more than 0"));
  EXPECT_THAT(Message(ParseNormalization("1/-2")), HasSubstr("expected more than 0"));
  EXPECT_THAT(Message(ParseNormalization("x/1")), HasSubstr("'x' is no number"));
  EXPECT_THAT(Message(ParseNormalization("inf/1")), HasSubstr("'inf' is no number"));
}

TEST(ParsePaddingTest, TakesLengthsAValueAndWhetherToCut) {
  const auto one = ParsePadding("64");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(one->lengths, ElementsAre(64));
  EXPECT_EQ(one->value, 0);
  EXPECT_FALSE(one->cut);
  const auto all = ParsePadding("16,32,64:-0.5:cut");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_THAT(all->lengths, ElementsAre(16, 32, 64));
  EXPECT_EQ(all->value, -0.5);
  EXPECT_TRUE(all->cut);
  EXPECT_THAT(ParsePadding("8..20:cut")->lengths, ElementsAre(8, 16, 20));
  EXPECT_THAT(ParsePadding("8..16")->lengths, ElementsAre(8, 16));
}

TEST(ParsePaddingTest, SaysWhatIsWrong) {
  EXPECT_THAT(Message(ParsePadding("")), HasSubstr("one length or several"));
  EXPECT_THAT(Message(ParsePadding("32,16")), HasSubstr("ascending"));
  EXPECT_THAT(Message(ParsePadding("0")), HasSubstr("one length or several"));
  EXPECT_THAT(Message(ParsePadding("1..1000")), HasSubstr("at most 64 lengths"));
  EXPECT_THAT(Message(ParsePadding("16..8")), HasSubstr("STEP..LONGEST"));
  EXPECT_THAT(Message(ParsePadding("8:x")), HasSubstr("LENGTHS[:VALUE][:cut]"));
  EXPECT_THAT(Message(ParsePadding("8:cut:1")), HasSubstr("LENGTHS[:VALUE][:cut]"));
  EXPECT_THAT(Message(ParsePadding("8:1:2")), HasSubstr("LENGTHS[:VALUE][:cut]"));
}

DataSpec FullSpec() {
  DataSpec spec;
  DataSpec::File& file = spec.files.emplace_back();
  file.input = "x";
  file.path = "/data/shard-*";
  file.part = "image/encoded";
  file.format = "tfrecord";
  file.padding = {{16, 64}, -100, /*cut=*/true};
  file.mask_of = "y";
  file.normalization = {true, {0.1, 1.0 / 3}, {0.5, 2}};
  file.augmentations = {{Augmentation::Kind::kCrop, 4}, {Augmentation::Kind::kFlip, 0}};
  DataSpec::File& labels = spec.files.emplace_back();
  labels.input = "labels";
  labels.path = "y";
  labels.is_labels = true;
  spec.drop_last = true;
  spec.validation_split = 0.1;
  spec.share = DataShare::kValidation;
  spec.sequence_length = 256;
  spec.stride = 16;
  spec.document_end = 50256;
  spec.group_lengths = true;
  spec.vocabulary = "characters";
  spec.image_shape = {3, 32, 48};
  spec.classes = {"cat", "d\xc3\xb6g", "\xf6 \"\\"};
  spec.prefetch = 5;
  spec.reader_threads = 7;
  return spec;
}

TEST(DataSpecJsonTest, KeepsEveryField) {
  const DataSpec spec = FullSpec();
  const auto back = DataSpec::FromJson(spec.ToJson());
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->ToJson(), spec.ToJson());
  ASSERT_EQ(back->files.size(), 2u);
  const DataSpec::File& file = back->files[0];
  EXPECT_EQ(file.part, "image/encoded");
  EXPECT_EQ(file.format, "tfrecord");
  EXPECT_THAT(file.padding.lengths, ElementsAre(16, 64));
  EXPECT_EQ(file.padding.value, -100);
  EXPECT_TRUE(file.padding.cut);
  EXPECT_EQ(file.mask_of, "y");
  EXPECT_EQ(back->document_end, 50256);
  EXPECT_TRUE(back->group_lengths);
  EXPECT_TRUE(file.normalization.automatic);
  EXPECT_THAT(file.normalization.mean, ElementsAre(0.1, 1.0 / 3));
  ASSERT_EQ(file.augmentations.size(), 2u);
  EXPECT_EQ(file.augmentations[0].kind, Augmentation::Kind::kCrop);
  EXPECT_EQ(file.augmentations[0].amount, 4);
  EXPECT_FALSE(file.is_labels);
  EXPECT_TRUE(back->files[1].is_labels);
  EXPECT_TRUE(back->drop_last);
  EXPECT_EQ(back->validation_split, 0.1);
  EXPECT_EQ(back->share, DataShare::kValidation);
  EXPECT_EQ(back->sequence_length, 256);
  EXPECT_EQ(back->stride, 16);
  EXPECT_EQ(back->vocabulary, "characters");
  EXPECT_THAT(back->image_shape, ElementsAre(3, 32, 48));
  EXPECT_THAT(back->classes, ElementsAre("cat", "d\xc3\xb6g", "\xf6 \"\\"));
  EXPECT_EQ(back->prefetch, 5);
  EXPECT_EQ(back->reader_threads, 7);
}

TEST(DataSpecJsonTest, FieldsOfTheWrongKindAreErrors) {
  const std::string whole = FullSpec().ToJson();
  const auto with = [&whole](const std::string& from, const std::string& to) {
    std::string text = whole;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return Message(DataSpec::FromJson(text.replace(at, from.size(), to)));
  };
  EXPECT_THAT(with("\"kind\":1", "\"kind\":4"), HasSubstr("'kind'"));
  EXPECT_THAT(with("\"amount\":4.0", "\"amount\":-4"), HasSubstr("'amount'"));
  EXPECT_THAT(with("\"mean\":[0.1,", "\"mean\":["), HasSubstr("differ in length"));
  EXPECT_THAT(with("\"mean\":[0.1,", "\"mean\":[\"a\","), HasSubstr("'mean'"));
  EXPECT_THAT(with("\"share\":\"validation\"", "\"share\":\"most\""), HasSubstr("'share'"));
  EXPECT_THAT(with("\"validation_split\":0.1", "\"validation_split\":1.5"),
              HasSubstr("'validation_split'"));
  EXPECT_THAT(with("\"sequence_length\":256", "\"sequence_length\":0"),
              HasSubstr("'sequence_length'"));
  EXPECT_THAT(with("\"classes\":[\"cat\"", "\"classes\":[7"), HasSubstr("'classes'"));
  EXPECT_THAT(with("\"reader_threads\":7", "\"reader_threads\":70000"),
              HasSubstr("'reader_threads'"));
  EXPECT_THAT(with("\"pad_lengths\":[16,", "\"pad_lengths\":[-16,"), HasSubstr("'pad_lengths'"));
  EXPECT_THAT(with("\"pad_lengths\":[16,", "\"pad_lengths\":[64,"), HasSubstr("'pad_lengths'"));
  EXPECT_THAT(with("\"document_end\":50256", "\"document_end\":-2"), HasSubstr("'document_end'"));
}

}  // namespace
}  // namespace weft
