/* A broker of MDP/0.1 in the design of the guide's: one thread, one ROUTER, a message
   as a list of frames that are allocated one by one, a table of workers by the text of
   their identity, lists of workers that are searched from the front, and workers that
   have fallen silent looked for at each request. It is written from the description of
   that design. Errors of the protocol end a connection's part in it, no more. */

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zmq.h>
#include "majordomo.h"

enum { interval = 2500, liveness = 3, buckets = 1024 };

/* Frames and messages. */

typedef struct frame {
    struct frame *next;
    zmq_msg_t msg;
} frame;

typedef struct {
    frame *first, *last;
    int count;
} message;

static void append (message *m, frame *f)
{
    f->next = NULL;
    if (m->last)
        m->last->next = f;
    else
        m->first = f;
    m->last = f;
    m->count++;
}

static void prepend (message *m, frame *f)
{
    f->next = m->first;
    m->first = f;
    if (!m->last)
        m->last = f;
    m->count++;
}

static frame *pop (message *m)
{
    frame *f = m->first;
    if (f) {
        m->first = f->next;
        if (!m->first)
            m->last = NULL;
        m->count--;
    }
    return f;
}

static frame *new_frame (const void *data, size_t size)
{
    frame *f = malloc (sizeof *f);
    zmq_msg_init_size (&f->msg, size);
    memcpy (zmq_msg_data (&f->msg), data, size);
    return f;
}

static frame *copy_frame (frame *f)
{
    return new_frame (zmq_msg_data (&f->msg), zmq_msg_size (&f->msg));
}

static void free_frame (frame *f)
{
    if (f) {
        zmq_msg_close (&f->msg);
        free (f);
    }
}

static void free_message (message *m)
{
    if (!m)
        return;
    while (m->first)
        free_frame (pop (m));
    free (m);
}

static int is (frame *f, const char *text)
{
    size_t n = strlen (text);
    return f && zmq_msg_size (&f->msg) == n && memcmp (zmq_msg_data (&f->msg), text, n) == 0;
}

static message *receive (void *socket)
{
    message *m = calloc (1, sizeof *m);
    for (;;) {
        frame *f = malloc (sizeof *f);
        zmq_msg_init (&f->msg);
        if (zmq_msg_recv (&f->msg, socket, 0) < 0) {
            free_frame (f);
            free_message (m);
            return NULL;
        }
        append (m, f);
        if (!zmq_msg_more (&f->msg))
            return m;
    }
}

/* send_message sends and frees a message. */
static void send_message (message *m, void *socket)
{
    frame *f;
    while ((f = pop (m))) {
        zmq_msg_send (&f->msg, socket, m->first ? ZMQ_SNDMORE : 0);
        free_frame (f);
    }
    free (m);
}

/* Lists of pointers, singly linked. */

typedef struct item {
    struct item *next;
    void *what;
} item;

typedef struct {
    item *first, *last;
    int count;
} list;

static void list_append (list *l, void *what)
{
    item *i = malloc (sizeof *i);
    i->next = NULL;
    i->what = what;
    if (l->last)
        l->last->next = i;
    else
        l->first = i;
    l->last = i;
    l->count++;
}

static void list_remove (list *l, void *what)
{
    item *before = NULL;
    for (item *i = l->first; i; before = i, i = i->next) {
        if (i->what != what)
            continue;
        if (before)
            before->next = i->next;
        else
            l->first = i->next;
        if (l->last == i)
            l->last = before;
        free (i);
        l->count--;
        return;
    }
}

static void *list_pop (list *l)
{
    void *what = NULL;
    if (l->first) {
        what = l->first->what;
        list_remove (l, what);
    }
    return what;
}

/* A table by text. */

typedef struct entry {
    struct entry *next;
    char *key;
    void *value;
} entry;

typedef struct {
    entry *buckets[buckets];
} table;

static entry **find (table *t, const char *key)
{
    uint32_t h = 0;
    for (const char *c = key; *c; c++)
        h = 33 * h ^ (unsigned char) *c;
    entry **e = &t->buckets[h % buckets];
    while (*e && strcmp ((*e)->key, key) != 0)
        e = &(*e)->next;
    return e;
}

static void enter (table *t, const char *key, void *value)
{
    entry *e = malloc (sizeof *e);
    e->key = strdup (key);
    e->value = value;
    entry **at = find (t, key);
    e->next = *at;
    *at = e;
}

static void leave (table *t, const char *key)
{
    entry **at = find (t, key), *e = *at;
    if (e) {
        *at = e->next;
        free (e->key);
        free (e);
    }
}

/* The broker. */

typedef struct {
    char *name;
    list requests, waiting;
} service;

typedef struct {
    char *id; /* of the identity, as text */
    frame *address;
    service *service;
    int64_t expiry;
} worker;

typedef struct {
    void *socket;
    table services, workers;
    list waiting;
    int64_t due;
} broker;

static int64_t now (void)
{
    struct timespec t;
    clock_gettime (CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static char *hex (frame *f)
{
    static const char digit[] = "0123456789ABCDEF";
    size_t n = zmq_msg_size (&f->msg);
    unsigned char *data = zmq_msg_data (&f->msg);
    char *text = malloc (2 * n + 1);
    for (size_t i = 0; i < n; i++) {
        text[2 * i] = digit[data[i] >> 4];
        text[2 * i + 1] = digit[data[i] & 15];
    }
    text[2 * n] = 0;
    return text;
}

static char *text (frame *f)
{
    size_t n = zmq_msg_size (&f->msg);
    char *s = malloc (n + 1);
    memcpy (s, zmq_msg_data (&f->msg), n);
    s[n] = 0;
    return s;
}

static service *require_service (broker *b, frame *name)
{
    char *key = text (name);
    entry *e = *find (&b->services, key);
    service *s;
    if (e) {
        free (key);
        return e->value;
    }
    s = calloc (1, sizeof *s);
    s->name = key;
    enter (&b->services, key, s);
    return s;
}

static void tell (broker *b, worker *w, const char *command, message *m)
{
    message *copy = m ? m : calloc (1, sizeof *copy);
    prepend (copy, new_frame (command, 1));
    prepend (copy, new_frame ("MDPW01", 6));
    prepend (copy, new_frame ("", 0));
    prepend (copy, copy_frame (w->address));
    send_message (copy, b->socket);
}

static void delete_worker (broker *b, worker *w, int disconnect)
{
    if (disconnect)
        tell (b, w, "\5", NULL);
    if (w->service)
        list_remove (&w->service->waiting, w);
    list_remove (&b->waiting, w);
    leave (&b->workers, w->id);
    free (w->id);
    free_frame (w->address);
    free (w);
}

static void purge (broker *b)
{
    while (b->waiting.first) {
        worker *w = b->waiting.first->what;
        if (now () < w->expiry)
            return;
        delete_worker (b, w, 0);
    }
}

static void dispatch (broker *b, service *s)
{
    purge (b);
    while (s->requests.count && s->waiting.count) {
        worker *w = list_pop (&s->waiting);
        list_remove (&b->waiting, w);
        tell (b, w, "\2", list_pop (&s->requests));
    }
}

static void wait_for_work (broker *b, worker *w)
{
    list_append (&b->waiting, w);
    list_append (&w->service->waiting, w);
    w->expiry = now () + interval * liveness;
    dispatch (b, w->service);
}

static void from_worker (broker *b, frame *sender, message *m)
{
    char *id = hex (sender);
    entry *e = *find (&b->workers, id);
    worker *w = e ? e->value : NULL;
    int known = w != NULL;
    frame *command = pop (m);
    if (!w) {
        w = calloc (1, sizeof *w);
        w->id = strdup (id);
        w->address = copy_frame (sender);
        enter (&b->workers, id, w);
    }
    free (id);
    if (is (command, "\1") && !known && m->count == 1) {
        frame *name = pop (m);
        w->service = require_service (b, name);
        free_frame (name);
        wait_for_work (b, w);
    } else if (is (command, "\3") && known && m->count >= 3) {
        frame *client = pop (m);
        free_frame (pop (m)); /* the empty frame */
        prepend (m, new_frame (w->service->name, strlen (w->service->name)));
        prepend (m, new_frame ("MDPC01", 6));
        prepend (m, new_frame ("", 0));
        prepend (m, client);
        message *copy = malloc (sizeof *copy);
        *copy = *m;
        memset (m, 0, sizeof *m);
        send_message (copy, b->socket);
        wait_for_work (b, w);
    } else if (is (command, "\4") && known) {
        w->expiry = now () + interval * liveness;
    } else if (is (command, "\5")) {
        delete_worker (b, w, 0);
    } else {
        delete_worker (b, w, 1);
    }
    free_frame (command);
}

static void from_client (broker *b, frame *sender, message *m)
{
    frame *name = pop (m);
    service *s = require_service (b, name);
    free_frame (name);
    message *request = malloc (sizeof *request);
    *request = *m;
    memset (m, 0, sizeof *m);
    prepend (request, new_frame ("", 0));
    prepend (request, copy_frame (sender));
    list_append (&s->requests, request);
    dispatch (b, s);
}

int majordomo_broker (void *router)
{
    broker *b = calloc (1, sizeof *b);
    b->socket = router;
    b->due = now () + interval;
    for (;;) {
        zmq_pollitem_t items[] = {{router, 0, ZMQ_POLLIN, 0}};
        if (zmq_poll (items, 1, interval) < 0 && zmq_errno () != EINTR)
            return zmq_errno ();
        if (items[0].revents & ZMQ_POLLIN) {
            message *m = receive (router);
            if (!m) {
                if (zmq_errno () == EINTR)
                    continue;
                return zmq_errno ();
            }
            frame *sender = pop (m), *empty = pop (m), *header = pop (m);
            if (is (header, "MDPC01") && m->count >= 2)
                from_client (b, sender, m);
            else if (is (header, "MDPW01") && m->count >= 1)
                from_worker (b, sender, m);
            free_frame (sender);
            free_frame (empty);
            free_frame (header);
            free_message (m);
        }
        if (now () >= b->due) {
            purge (b);
            for (item *i = b->waiting.first; i; i = i->next)
                tell (b, i->what, "\4", NULL);
            b->due = now () + interval;
        }
    }
}
