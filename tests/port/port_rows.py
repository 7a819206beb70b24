"""Rows for `python -m alpha.port`: a program or an expression of PyTorch, and what must be found on its last line.

What must be found is a level and parts of the text, as "change: .. write -1"; two points stand for what is between.
"""

from __future__ import annotations

HEAD = (
    "import numpy as np\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
    "from torchvision import models\n"
)
NET = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.fc = nn.Linear(8, 2)
    def forward(self, x):
        y = self.conv(x)
"""
SEQUENCE = NET.replace("Conv2d", "Conv1d")
VOLUME = NET.replace("Conv2d", "Conv3d")
PICTURE = "def f(x, h, w):\n    y = x.view(3, h, w)\n"
# expressions of y, which is a map
OF_MAPS = {
    "torch.cat([y, y], 1)": "change: axis 1 .. is the channels: write -1",
    "y.chunk(2, dim=1)": "change: axis 1 .. is the channels: write -1",
    "y.mean(1)": "change: axis 1 .. is the channels: write -1",
    "y.max(1)": "change: axis 1 .. is the channels: write -1",
    "y.norm(2, 1)": "change: axis 1 .. is the channels: write -1",
    "y.argmax(dim=1, keepdim=True)": "change: axis 1 .. is the channels: write -1",
    "y.mean(-1).mean(-1)": "change: axis -1 of (N, C, H, W) is the columns: write 2",
    "y.sum((2, 3))": "change: the axes of a map are (N, H, W, C): write (1, 2)",
    "y.mean(dim=[0, 2, 3])": "change: the axes of a map are (N, H, W, C): write (0, 1, 2)",
    "F.softmax(y)": "change: without dim= .. write dim=-1",
    "F.log_softmax(y, 1)": "change: axis 1 .. is the channels: write -1",
    "F.normalize(y)": "change: dim=1 (the default) means the channels: write dim=-1",
    "F.normalize(y, dim=2)": "change: dim=2 means the rows: write dim=1",
    "F.cosine_similarity(y, y)": "change: dim=1 (the default) means the channels: write dim=-1",
    "nn.Softmax(dim=1)(y)": "change: axis 1 .. is the channels: write -1",
    "nn.LogSoftmax(1)(y)": "change: axis 1 .. is the channels: write -1",
    "nn.Sequential(self.conv, nn.Softmax(1))(x)": "change: axis 1 .. is the channels: write -1",
    "nn.GLU(1)(y)": "change: axis 1 .. is the channels: write -1",
    "np.argmax(y.detach().numpy(), axis=1)": "change: axis 1 .. is the channels: write -1",
    "np.concatenate([y, y], 1)[:, :3]": "change: axis 1 .. is the channels: write -1",
    "y.shape[-2:]": "change: rows and columns are the axes 1 and 2: write shape[1:3]",
    "F.interpolate(y, size=x.shape[2:])": "change: rows and columns are the axes 1 and 2: write shape[1:3]",
    "y.size(3)": "change: axis 3 of (N, C, H, W) is the columns: write axis 2",
    "y.shape[1]": "change: axis 1 of (N, C, H, W) is the channels: write axis -1",
    "y[:, :3]": "change: channels are the last axis: write [..., channels]",
    "y[:, 0]": "change: channels are the last axis: write [..., channels]",
    "y[:, :, 1:, 1:]": "change: the axes begin with 1 behind the batch: write [:, rows, columns]",
    "y[..., ::2, ::2]": "change: the last axis is the channels: write [:, rows, columns]",
    "y * s[:, :, None, None]": "change: channels beside a map are its last axis: write [:, None, None] of (N, C)",
    "y * s[:, None, None]": "look: channels beside a map are its last axis: .. nothing of (C,)",
    "y.squeeze(1)": "change: axis 1 of (N, C, H, W) is the channels: write squeeze(-1)",
    "y + s.unsqueeze(2).unsqueeze(3)": (
        "change: channels beside a map are (N, 1, 1, C): write .unsqueeze(1).unsqueeze(1)"
    ),
    "y.permute(0, 2, 3, 1)": "change: channels are last already: leave it out",
    "y.transpose(2, 3)": "change: write the axes 1, 2",
    "y.flatten(2)": "change: the pixels of a map are its axes 1 and 2: write .flatten(1, 2)",
    "y.flatten(2).transpose(1, 2)": "change: the pixels of a map are axis 1 already: leave it out; with y = x.view",
    "y.flatten(1)": "note: features of a flattened map",
    "y.view(y.size(0), -1)": "note: features of a flattened map",
    "torch.flatten(y, 1)": "note: features of a flattened map",
    "y.flatten(0, 1)": "change: joins the images with their channels",
    "y.view(len(y), 8, -1)": "change: this mixes channels and pixels here: write y = x.view(b, h * w, c)",
    "y * self.b.view(1, -1, 1, 1)": "change: the channels are the last axis: write view(n, 1, 1, c)",
    "y * self.b.view(-1, 1, 1)": "change: the channels are the last axis: write view(-1, 1, c)",
    "y.view(4, 2, 4, 6, 6)": "change: groups of channels are the last two axes: write view(n, h, w, groups, c)",
    "self.fc(s).view(4, 8, 6, 6)": "change: a map is (N, H, W, C): write the channels last; .. unflattened=",
    "F.pad(y, (1, 1))": "change: numbers are for the last axis first, .. put the pair of the channels first",
    "F.pad(y, (1, 1, 2, 2))": "change: four numbers pad the last two axes .. (0, 0, left, right, top, bottom)",
    "y.flip(1)": "change: the last axis is the channels, .. write -1 for (N, H, W, C)",
    "torch.rot90(y, 1, [2, 3])": "change: the last axis is the channels, .. write 1, 2 for (N, H, W, C)",
    "y.rot90(k=1, dims=(-2, -1))": "change: the last axis is the channels, .. write 1, 2 for (N, H, W, C)",
    "y.select(1, 0)": "change: axis 1 .. is the channels: write -1",
    "y.narrow(1, 0, 2)": "change: axis 1 .. is the channels: write -1",
    "torch.index_select(y, 1, i)": "change: axis 1 .. is the channels: write -1",
    "torch.zeros_like(y).scatter_(1, i, 1.0)": "change: axis 1 .. is the channels: write -1",
    "torch.gather(y, 1, i)": "change: axis 1 .. is the channels: write -1",
    "torch.take_along_dim(y, i, dim=1)": "change: axis 1 .. is the channels: write -1",
    "y.sort(dim=1, descending=True)": "change: axis 1 .. is the channels: write -1",
    "y.repeat_interleave(2, 2)": "change: axis 2 .. is the rows: write 1",
    "torch.diff(y, 1, 3)": "change: axis 3 .. is the columns: write 2",
    "torch.var_mean(y, 1)": "change: axis 1 .. is the channels: write -1",
    "torch.linalg.vector_norm(y, 2, 1)": "change: axis 1 .. is the channels: write -1",
    "torch.roll(y, 1, 2)": "change: the last axis is the channels, .. write 1 for (N, H, W, C)",
    "y.expand(4, channels, -1, -1)": "change: the channels are the last axis: write them last",
    "torch.randn(4, 3, 32, 32)": "change: .. write the sizes as (n, h, w, c)",
    "torch.zeros(1, dim, 1, 1)": "change: .. write the sizes as (n, h, w, c)",
    "torch.zeros((3, 32, 32))": "change: .. write the sizes as (h, w, c)",
    "torch.Tensor(4, 3, 32, 32)": "change: .. write the sizes as (n, h, w, c)",
    "nn.LayerNorm([c, h, w])": "change: a map is (H, W, C): write nn.LayerNorm((h, w, c))",
    "nn.Unflatten(1, (8, 4, 4))": "change: a map is made as (H, W, C): write nn.Unflatten(1, (h, w, c))",
    "torch.einsum('bchw->bc', y)": "change: 'bchw' has the channels before what they are of: write 'bhwc'",
    "np.transpose(y, (0, 2, 3, 1))": "change: channels are last already: leave it out",
}
# expressions of y (N, C, L)
OF_SEQUENCES = {
    "y[:, :, :-3]": "change: the axes begin with 1 behind the batch: write [:, positions]",
    "y[:, 0]": "change: channels are the last axis: write [..., channels]",
    "y[..., -1]": "change: the last axis is the channels: write [:, positions]",
    "y.mean(2)": "change: axis 2 of (N, C, L) is the positions: write 1",
    "y.amax(-1)": "change: axis -1 of (N, C, L) is the positions: write 1",
    "y.softmax(1)": "change: axis 1 of (N, C, L) is the channels: write -1",
    "torch.cat([y, x], 1)": "change: axis 1 of (N, C, L) is the channels: write -1",
    "y.transpose(1, 2)": "change: a sequence is (N, L, C) already: leave it out",
    "self.fc(y.permute(0, 2, 1))": "change: a sequence is (N, L, C) already: leave it out",
    "y.size(2)": "change: axis 2 of (N, C, L) is the positions: write axis 1",
    "y.shape[2:]": "change: the axes of a sequence are (N, L, C): write shape[1:2]",
    "y.shape[1]": "change: axis 1 of (N, C, L) is the channels: write axis -1",
    "y.flip(-1)": "change: the last axis is the channels, .. write 1 for (N, L, C)",
    "F.pad(y, (2, 0))": "change: numbers are for the last axis first, .. (0, 0) if they are not padded",
    "y.squeeze(2)": "change: axis 2 of (N, C, L) is the positions: write squeeze(1)",
    "F.max_pool1d(y, 2)[:, :, 0]": "change: the axes begin with 1 behind the batch: write [:, positions]",
    "torch.randn(4, channels, 50)": "look: channels are the last axis of sequences: write the sizes as (n, l, c)",
    "self.conv(z.transpose(1, 2))": "change: a sequence stays (N, L, C): leave it out",
    "self.tcn(z.transpose(1, 2)).transpose(1, 2)": "look: turned and turned back: .. leave both out",
}
# expressions of y (N, C, D, H, W)
OF_VOLUMES = {
    "y.mean((2, 3, 4))": "change: the axes of a volume are (N, D, H, W, C): write (1, 2, 3)",
    "y[:, :, 0]": "change: the axes begin with 1 behind the batch: write [:, slices, rows, columns]",
    "y.chunk(2, 1)": "change: axis 1 of (N, C, D, H, W) is the channels: write -1",
    "y.shape[2:]": "change: the axes of a volume are (N, D, H, W, C): write shape[1:4]",
    "y.size(4)": "change: axis 4 of (N, C, D, H, W) is the columns: write axis 3",
    "y.flip(2)": "change: the last axis is the channels, .. write 1 for (N, D, H, W, C)",
    "F.avg_pool3d(y, 2).shape[-1]": "change: axis -1 of (N, C, D, H, W) is the columns: write axis 3",
    "torch.randn(1, 3, 4, 8, 8)": "change: .. write the sizes as (n, d, h, w, c)",
}
# expressions of y (C, H, W)
OF_PICTURES = {
    "y.mean(0)": "change: a picture is (H, W, C): write -1",
    "y.size(1)": "change: a picture is (H, W, C): write axis 0",
    "y.flip(1)": "change: the last axis is the channels, .. write 0 for (H, W, C)",
    "y[:, 1:]": "change: a picture is (H, W, C): write [rows, columns, channels]",
    "y.permute(1, 2, 0)": "look: a picture is (H, W, C) already: leave it out",
}
# programs, by what they are about
PROGRAMS = {
    "flip(-1)": (
        "def f(x):\n    return x.flip(-1)\n",
        "look: the last axis is the channels, so this exchanges other axes: write 2",
    ),
    "torch.flip": ("def f(x):\n    return torch.flip(x, dims=[3])\n", "look: .. so this exchanges other axes: write 2"),
    "Gram": (
        "def f(x):\n    b, c, h, w = x.size()\n    return x.view(b, c, h * w)\n",
        "change: this mixes channels and pixels here",
    ),
    "Gram of four names": (
        "def f(x):\n    a, b, c, d = x.size()\n    return x.view(a * b, c * d)\n",
        "change: this mixes channels and pixels here",
    ),
    "Cutout": (
        "class Cutout:\n    def __call__(self, img):\n        h = img.size(1)\n        w = img.size(2)\n",
        "change: the columns of (N, H, W, C) are axis 2, of a picture (H, W, C) axis 1",
    ),
    "Cutout by shape": (
        "def f(img):\n    h, w = img.shape[1], img.shape[2]\n",
        "change: the rows of (N, H, W, C) are axis 1, of a picture (H, W, C) axis 0",
    ),
    "softmax of a map": (
        "def f(net, x):\n    return F.softmax(net(x), dim=1)\n",
        "look: axis 1 .. is the channels: write -1, if it is one",
    ),
    "argmax of a map": (
        "def f(net, x):\n    return net(x).argmax(1)\n",
        "look: axis 1 .. is the channels: write -1, if it is one",
    ),
    "weight.shape[2:]": (
        "def f(weight):\n    return weight.shape[2:]\n",
        "change: a filter is (out, height, width, in): write shape[1:3]",
    ),
    "conv.weight.size(2)": (
        "def f(conv):\n    return conv.weight.size(2)\n",
        "look: a filter is (out, height, width, in): write axis 1",
    ),
    "F.pad": ("def f(x):\n    return F.pad(x, (1, 1, 1, 1))\n", "look: four numbers pad the last two axes"),
    "sums of channels": (
        "def f(x):\n    return x.mean(dim=[0, 2, 3])\n",
        "change: the axes of a map are (N, H, W, C): write (0, 1, 2)",
    ),
    "colours": (
        "def f(images):\n    return images[:, [2, 1, 0]]\n",
        "look: channels are the last axis: write [..., channels]",
    ),
    "F.pad of a list": (
        "def f(x, p):\n    return nn.functional.pad(x, [p] * 4)\n",
        "look: four numbers pad the last two axes",
    ),
    "pad of a variable": (
        "def f(x, p):\n    pad = (p,) * 4\n    return F.pad(x, pad)\n",
        "look: four numbers pad the last two axes",
    ),
    "mirrored by an index": (
        "def f(images, i):\n    return images[:, :, :, i]\n",
        "look: rows and columns of a map are the axes 1 and 2: write [:, rows, columns]",
    ),
    "channels of a dataset": (
        "def f(mnist):\n    return mnist.data.unsqueeze(1)\n",
        "look: an axis of channels is the last one: write unsqueeze(-1)",
    ),
    "shuffled groups": (
        "def f(x, g, c, h, w):\n    y = x.view(4, g, c, h, w)\n    return y.transpose(1, 2).contiguous()\n",
        "change: the groups and their channels are the axes 3 and 4: write transpose(3, 4)",
    ),
    "Gram by einsum": (
        "def f(y):\n    return torch.einsum('nchw, ndhw -> ncd', y, y)\n",
        "change: 'nchw' has the channels before what they are of: write 'nhwc'",
    ),
    "einsum of sequences": (
        "def f(y, w):\n    return torch.einsum('bct,ck->bkt', y, w)\n",
        "look: 'bct' has the channels before what they are of: write 'btc'",
    ),
    "sides of a picture": (
        "def f(image):\n    _, h, w = image.shape\n",
        "look: a picture is (H, W, C): write h, w, c = x.shape",
    ),
    "Cutout by slices": (
        "def f(image):\n    h, w = image.size()[1:]\n",
        "look: a picture is (H, W, C): write shape[:2]",
    ),
    "Cutout in place": (
        "def f(image, y, x):\n    image[:, y : y + 8, x : x + 8] = 0\n",
        "look: a picture is (H, W, C): write [rows, columns, channels]",
    ),
    "taps of a filter": (
        "def f(m):\n    return m.weight[0][0].numel()\n",
        "look: a filter is (out, height, width, in): write weight[out, :, :, in]",
    ),
    "names of a filter": (
        "def f(m):\n    o, i, h, w = m.weight.shape\n",
        "change: a filter is (out, height, width, in): write out, h, w, in = weight.shape",
    ),
    "channels of a filter": (
        "def f(conv1):\n    return conv1.weight.size(1)\n",
        "look: a filter is (out, height, width, in): write axis -1",
    ),
    "best of a map": (
        "def f(net, images):\n    return net(images).max(1)[1]\n",
        "look: axis 1 .. is the channels: write -1, if it is one",
    ),
    "resnet18": ("net = models.resnet18()\n", "change: write alpha.models.torchvision.resnet18"),
    "mirror of a transform": (
        "class Mirror:\n    def __call__(self, img):\n        return img.flip(-1)\n",
        "look: the last axis is the channels, .. write 1 for (H, W, C)",
    ),
    "rows of a Cutout": (
        "class Cutout:\n    def __call__(self, img):\n        h = img.size(1)\n",
        "change: the rows of (N, H, W, C) are axis 1, of a picture (H, W, C) axis 0",
    ),
    "moments of a map": (
        "def f(net, x):\n    return net(x).mean(1, keepdim=True)\n",
        "look: axis 1 of a map .. write -1, if it is one",
    ),
    "sum of columns": (
        "def f(net, x):\n    return net(x).sum(3)\n",
        "look: axis 3 of a map (N, C, H, W) is the columns: write 2, if it is one",
    ),
    "count of channels": (
        "def f(images):\n    return images.size(1)\n",
        "look: axis 1 of (N, C, H, W) is the channels: write axis -1",
    ),
    "colours of an image": (
        "def f(images):\n    return images.mean(1)\n",
        "look: axis 1 of (N, C, H, W) is the channels: write -1",
    ),
    "joined with channels": (
        "def f(a, b):\n    dims = (-1, -2)\n    return a.flatten(0, 1)\n",
        "look: joins the images .. write x.movedim(-1, 1).flatten(0, 1), if it is a map",
    ),
    "cut rows": (
        "def f(net, x):\n    return net(x)[:, :, 1:, 1:]\n",
        "look: rows and columns of a map are the axes 1 and 2: write [:, rows, columns]",
    ),
    "cut channels": (
        "def f(net, x):\n    return net(x)[:, :3, :, :]\n",
        "look: channels are the last axis: write [..., channels]",
    ),
    "four names": (
        "def f(x):\n    n, c, h, w = x.shape\n",
        "change: a map is (N, H, W, C): write n, h, w, c = x.shape",
    ),
    "three names of sides": (
        "def f(x):\n    c, h, w = x.shape\n",
        "change: a picture is (H, W, C): write h, w, c = x.shape",
    ),
    "three names of a sequence": (
        "def f(x):\n    b, c, t = x.shape\n",
        "look: a sequence is (N, L, C): write n, l, c = x.shape",
    ),
    "last two lengths": (
        "def f(x):\n    h, w = x.shape[-2:]\n",
        "change: rows and columns are the axes 1 and 2: write shape[1:3]",
    ),
    "size of what is not known": (
        "def f(net, x):\n    return F.interpolate(net(x)['out'], size=x.shape[-2:], mode='bilinear')\n",
        "change: rows and columns are the axes 1 and 2: write shape[1:3]",
    ),
    "spatial lengths": (
        "def f(x):\n    return x.shape[2:]\n",
        "look: rows and columns are the axes 1 and 2: write shape[1:3]",
    ),
    "length of channels": ("def f(x):\n    c = x.shape[1]\n", "look: the channels are the last axis: write -1"),
    "length of what is cut later": (
        "def f(x, s):\n    c = int(x.size(1) * s); return x[:, :c, :, :]\n",
        "look: axis 1 of (N, C, H, W) is the channels: write axis -1",
    ),
    "picture of sizes": (
        "def f(x, h, w):\n    return x.view(3, h, w)\n",
        "change: a picture is (H, W, C): write the sizes so",
    ),
    "sequence of sizes": (
        "def f(data):\n    return data.view(-1, input_channels, seq_length)\n",
        "look: a sequence is (N, L, C): write view(n, l, c)",
    ),
    "image for a plot": (
        "def f(image):\n    return image.permute(1, 2, 0)\n",
        "change: a picture is (H, W, C) already: leave it out",
    ),
    "array for a network": (
        "def f(x):\n    return np.transpose(x, (2, 0, 1))\n",
        "change: a picture stays (H, W, C): leave it out",
    ),
    "last positions": (
        "def f(net, x):\n    y = net(x)\n    return y[:, :, -1]\n",
        "look: the positions of (N, C, L) are axis 1: write [:, positions], if it is a sequence",
    ),
    "channels padded": (
        "def f(x, p):\n    return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, p, p))\n",
        "look: numbers are for the last axis first, .. put the pair of the channels first",
    ),
    "mask of images": (
        "def f(mask, images):\n    return images * mask.expand_as(images)\n",
        "look: axes are added in front, .. mask.unsqueeze(-1).expand_as(image)",
    ),
    "einops of images": (
        "from einops import reduce as r\ndef f(x):\n    return r(x, 'b c h w -> b c', 'mean')\n",
        "change: 'b c h w' has the channels second: write them last, as 'b h w c'",
    ),
    "einops of sequences": (
        "from einops import rearrange\nlayer = nn.Conv1d(3, 4, 1)\ndef f(x):\n"
        "    return rearrange(x, 'b c t -> b t c')\n",
        "look: 'b c t' has the channels second: a sequence is 'b l c'",
    ),
    "names of a map": (
        f"{NET}        n, c, h, w = y.shape\n",
        "change: a map is (N, H, W, C): write n, h, w, c = x.shape",
    ),
    "names of a sequence": (
        f"{SEQUENCE}        a, b, d = y.shape\n",
        "change: a sequence is (N, L, C): write n, l, c = x.shape",
    ),
    "names of a volume": (
        f"{VOLUME}        n, c, d, h, w = y.shape\n",
        "change: a volume is (N, D, H, W, C): write n, d, h, w, c = x.shape",
    ),
}


def all_rows() -> list[tuple[str, str]]:
    """All programs, and what must be found on the last line of each."""
    rows = list(PROGRAMS.values())
    for begin, table in ((NET, OF_MAPS), (SEQUENCE, OF_SEQUENCES), (VOLUME, OF_VOLUMES), (PICTURE, OF_PICTURES)):
        indent = " " * (len(begin.splitlines()[-1]) - len(begin.splitlines()[-1].lstrip()))
        rows += [(f"{begin}{indent}return {expression}\n", wanted) for expression, wanted in table.items()]
    return rows
