#include "training/checkpoint/folder_owner.h"

#include <string>

#include "distributed/coordinator_epoch.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FolderOwnerTest : public ::testing::Test {
 protected:
  FolderOwnerTest() { EXPECT_TRUE(files_.CreateDirectories("/saved").ok()); }
  testing::FakeFileSystem files_;
  FolderOwner first_{files_, "/saved"};
  FolderOwner second_{files_, "/saved"};
};

TEST_F(FolderOwnerTest, TheOneThatHasClaimedItLastMayWrite) {
  EXPECT_EQ(first_.Epoch(), 0u);
  ASSERT_TRUE(first_.Claim(3).ok());
  EXPECT_TRUE(first_.Check().ok());
  EXPECT_EQ(second_.Epoch(), 3u);
  ASSERT_TRUE(second_.Claim(4).ok());
  EXPECT_TRUE(second_.Check().ok());
  const absl::Status lost = first_.Check();
  EXPECT_TRUE(IsDeposed(lost)) << lost;
  EXPECT_THAT(std::string(lost.message()),
              AllOf(HasSubstr("its epoch is 3"), HasSubstr("folder /saved"), HasSubstr("epoch 4")));
}

// Two that have read the same: the later one has it, and the other finds out.
TEST_F(FolderOwnerTest, EqualEpochsAreToldApart) {
  ASSERT_TRUE(first_.Claim(5).ok());
  ASSERT_TRUE(second_.Claim(5).ok());
  EXPECT_TRUE(IsDeposed(first_.Check()));
  EXPECT_TRUE(second_.Check().ok());
}

TEST_F(FolderOwnerTest, WhatCannotBeReadSaysNothing) {
  EXPECT_TRUE(first_.Check().ok());  // it has claimed nothing
  ASSERT_TRUE(second_.Claim(1).ok());
  EXPECT_TRUE(first_.Check().ok());
  ASSERT_TRUE(first_.Claim(2).ok());
  for (const std::string text :
       {"", "epoch", "epoch x of 1\n", "epoch 9 of g\n", "epoch 9 by 1\n", "epoch 9 of 1 2\n"}) {
    ASSERT_TRUE(files_.WriteFileAtomically("/saved/coordinator", text).ok());
    EXPECT_EQ(second_.Epoch(), 0u) << text;
    EXPECT_TRUE(first_.Check().ok()) << text;
  }
  ASSERT_TRUE(files_.RemoveFile("/saved/coordinator").ok());
  EXPECT_TRUE(first_.Check().ok());
}

TEST_F(FolderOwnerTest, AFolderThatIsNotThereCannotBeClaimed) {
  FolderOwner nowhere(files_, "/nowhere");
  EXPECT_FALSE(nowhere.Claim(1).ok());
  EXPECT_TRUE(nowhere.Check().ok());
}

}  // namespace
}  // namespace weft
